"""Running uv: pinning a flavor's requirements and installing them into a folder."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workers.pipeline.flavor import Flavor, FlavorError

_OLDEST_PYTHON: Final = "3.11"
_HEADER: Final = "# Pinned by `make generation` from {names} (sha256 {digest}); keep it under version control.\n"


def locked(flavor: Flavor) -> Path:
    """Return the flavor's lock file (exact versions with hashes, for every Python), made anew if it is not up to date.

    Versions that the old lock has and the requirements still allow are kept. Raises ``FlavorError`` when uv can't
    resolve the requirements.
    """
    lock = flavor.lock
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in flavor.requirements)).hexdigest()
    header = _HEADER.format(names=" and ".join(path.name for path in flavor.requirements), digest=digest)
    before = lock.read_text(encoding="utf-8") if lock.exists() else ""
    if before.startswith(header):
        return lock
    # uv reads the versions to keep from the file that it is to write.
    draft = lock.with_name(f".{lock.name}.{os.getpid()}")
    draft.write_text(before, encoding="utf-8")
    try:
        _run(
            "pip", "compile", "--universal", "--generate-hashes", "--no-header", "--no-annotate",
            "--python-version", _OLDEST_PYTHON, "--output-file", str(draft), *map(str, flavor.requirements),
        )  # fmt: skip
        draft.write_text(header + draft.read_text(encoding="utf-8"), encoding="utf-8")
        draft.rename(lock)
    finally:
        draft.unlink(missing_ok=True)
    return lock


def install(lock: Path, packages: Path) -> None:
    """Install what ``lock`` pins into the folder ``packages``, with byte code, for the Python that runs this.

    Raises ``FlavorError`` when something can't be had or its hash differs.
    """
    _run(
        "pip", "install", "--require-hashes", "--python", sys.executable, "--target", str(packages),
        # Links into uv's cache would change with it.
        "--link-mode", "copy", "--compile-bytecode", "--requirements", str(lock),
    )  # fmt: skip
    (packages / ".lock").unlink(missing_ok=True)


def find_uv() -> Path:
    """Return the uv beside this Python, else the one on ``PATH``; ``FlavorError`` when there is none."""
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        return beside
    if on_path := shutil.which("uv"):
        return Path(on_path)
    raise FlavorError(f"uv was found neither beside {sys.executable} nor on PATH; install it with `pip install uv`")


def _run(*arguments: str) -> None:
    command: Sequence[str] = (str(find_uv()), *arguments, "--quiet")
    # A folder's own uv settings would change what is installed from one working directory to another.
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", stdin=subprocess.DEVNULL)
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()[-20:]
        raise FlavorError("\n".join([f"uv {' '.join(arguments[:2])} failed:", *lines]))
