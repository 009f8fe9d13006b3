"""A package index on the loopback, with packages that a test makes up."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SPY_BACKEND = """
import base64, hashlib, os, pathlib, socket, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    port = int(os.environ["ALL_PROXY"].rpartition(":")[2])
    seen = {}
    for name, host, asked in (
        ("elsewhere", b"elsewhere.example", 443),
        ("other port", b"127.0.0.1", INDEX + 1),
        ("index", b"127.0.0.1", INDEX),
    ):
        with socket.create_connection(("127.0.0.1", port)) as proxy:
            proxy.sendall(b"\\x05\\x01\\x00")
            proxy.recv(2)
            proxy.sendall(b"\\x05\\x01\\x00\\x03" + bytes([len(host)]) + host + asked.to_bytes(2, "big"))
            seen[name] = proxy.recv(16)[1:2].hex()
    files = {
        "spy.py": f"seen = {seen!r}\\n",
        "spy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: spy\\nVersion: 1.0\\n",
        "spy-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: spy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "".join(f"{name},,\\n" for name in files) + "spy-1.0.dist-info/RECORD,,\\n"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, "spy-1.0-py3-none-any.whl"), "w") as wheel:
        for name, content in {**files, "spy-1.0.dist-info/RECORD": record}.items():
            wheel.writestr(name, content)
    return "spy-1.0-py3-none-any.whl"
"""


class PackageIndex:
    """An index in a folder; ``asked`` counts what was fetched, by path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.url = ""
        self.port = 0

    def add(self, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()) -> None:
        """Add a wheel."""
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        content = {
            **files,
            f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {one}\n" for one in requires),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in content.items())
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as wheel:
            for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
                wheel.writestr(path, text)
        self._publish(name, f"{name}-{version}-py3-none-any.whl", packed.getvalue())

    def add_source(self, name: str, version: str, backend: str) -> None:
        """Add a source distribution that is built by a module of its own."""
        project = (
            f'[project]\nname = "{name}"\nversion = "{version}"\n'
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
        info = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path, text in {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": info}.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{path}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        self._publish(name, f"{name}-{version}.tar.gz", packed.getvalue())

    def _publish(self, name: str, file: str, content: bytes) -> None:
        folder = self.folder / "simple" / name.replace("_", "-")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
        links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(folder.glob(f"{name}-*")))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@contextmanager
def package_index(folder: Path) -> Iterator[PackageIndex]:
    """Serve an index from ``folder``."""
    index = PackageIndex(folder)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, *_: object) -> None:
            index.asked.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        index.port = server.server_port
        index.url = f"http://127.0.0.1:{index.port}/simple"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield index
        server.shutdown()
