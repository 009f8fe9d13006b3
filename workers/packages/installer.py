"""What runs inside an installing sandbox: uv, and a way for it to the proxy. Standard library only; sent by value."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WORK = Path("/tmp/install")  # noqa: S108 - the sandbox's own
_LAST_LINES = 20


class InstallError(Exception):
    """uv failed; the text is the end of what it said."""


def learn(setup: Mapping[str, Any], pin: str) -> None:
    """Fetch one wheel, so that the proxy sees which hosts the index uses; no package's code runs for it.

    An index that does not have it is left with the hosts that the operator's settings name.
    """
    with contextlib.suppress(InstallError):
        Uv(setup).run(
            "pip", "install", "--no-deps", "--only-binary", ":all:", "--python", sys.executable,
            "--target", str(WORK / "learned"), pin,
        )  # fmt: skip


def install(
    setup: Mapping[str, Any], requirements: Sequence[str], fixed: Mapping[str, str], *, build: bool
) -> pickle.PickleBuffer:
    """Install what ``requirements`` need beyond the flavor's packages; return its pins and a tar of it.

    Versions in ``fixed`` can't be others. Unless it may ``build``, no package's code runs. The answer is a line of
    JSON, then the tar: a buffer, which is readable without unpickling anything.
    """
    uv = Uv(setup)
    wanted, constraints, layer = WORK / "wanted.txt", WORK / "constraints.txt", WORK / "layer"
    shutil.rmtree(layer, ignore_errors=True)
    wanted.write_text("\n".join(requirements))
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in fixed.items()))
    # uv takes what these say for installed, and leaves alone what fits.
    flavor = [Path(shutil.copytree(one, layer / one.name)).name for one in Path(setup["packages"]).glob("*.dist-info")]
    uv.run(
        "pip", "install", "--python", sys.executable, "--target", str(layer), "--compile-bytecode",
        "--constraints", str(constraints), "--requirements", str(wanted), *(() if build else ("--no-build",)),
    )  # fmt: skip
    for name in flavor:
        shutil.rmtree(layer / name, ignore_errors=True)
    shutil.rmtree(uv.cache, ignore_errors=True)
    (layer / ".lock").unlink(missing_ok=True)
    added = {one.name.removesuffix(".dist-info").partition("-")[::2] for one in layer.glob("*.dist-info")}
    packed = io.BytesIO()
    packed.write(json.dumps(dict(added)).encode() + b"\n")
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(layer, arcname=".")
    return pickle.PickleBuffer(packed.getbuffer())


class Uv:
    """uv, with the operator's settings and the proxy as its only way out."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        WORK.mkdir(exist_ok=True)
        self.cache = WORK / "cache"
        self._program = setup["uv"]
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(WORK),
            "UV_CACHE_DIR": str(self.cache),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
            "ALL_PROXY": f"socks5h://127.0.0.1:{_open_way_out(setup['proxy'])}",
            **setup["environment"],
        }
        for variable, content in setup["files"].items():
            path = WORK / variable
            path.write_text(content)
            self._environment[variable] = str(path)

    def run(self, *arguments: str) -> None:
        """Run a command; ``InstallError`` when it fails."""
        ended = subprocess.run(
            [self._program, *arguments],
            env=self._environment,
            cwd=WORK,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if ended.returncode:
            raise InstallError("\n".join(ended.stderr.strip().splitlines()[-_LAST_LINES:]))


def _open_way_out(proxy: str) -> int:
    """Return a port of this sandbox's loopback that leads to the worker's proxy."""
    server = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            client, _ = server.accept()
            upstream = socket.socket(socket.AF_UNIX)
            try:
                upstream.connect(proxy)
            except OSError:
                client.close()
                continue
            for pair in ((client, upstream), (upstream, client)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])
