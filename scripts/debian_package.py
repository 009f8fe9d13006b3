"""One program out of a package of another Debian suite, without installing anything.

The mirror is the one this machine's apt already uses, and apt checks the package against Debian's own keys. The package
lists go to a temporary folder: the machine's own stay as they are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ARCHIVE_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_LIMIT_SECONDS = 300.0


class PackageError(Exception):
    """The package cannot be had here; the text says why."""


def program_from_package(folder: Path, *, suite: str, package: str, program: str) -> Path:
    """Unpack `package` of `suite` into `folder` and return the path of `program` in it.

    Raises `PackageError` when this is no Debian machine or apt cannot get the package.
    """
    if not ARCHIVE_KEYS.exists():
        raise PackageError(f"this is no Debian machine: there is no {ARCHIVE_KEYS}")
    failure = PackageError("apt has no source with Debian's packages: see /etc/apt/sources.list.d")
    for number, mirror in enumerate(_mirrors(folder)):
        attempt = folder / str(number)
        attempt.mkdir()
        try:
            _unpack(attempt, mirror, suite, package)
        except PackageError as error:
            failure = error
        else:
            return attempt / "unpacked" / program
    raise failure


def _mirrors(folder: Path) -> list[str]:
    """The archives that serve this machine's own suite; other vendors' may be among them."""
    targets = _run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages", "Component: main"],
        folder,
    )
    os_release = Path("/etc/os-release").read_text().splitlines()
    codename = next((line.partition("=")[2] for line in os_release if line.startswith("VERSION_CODENAME=")), "")
    own = {codename, "oldstable", "stable", "testing", "unstable", "sid"}
    pairs = [line.split(maxsplit=1) for line in targets.splitlines()]
    return list(dict.fromkeys(uri for release, uri in pairs if release in own))


def _unpack(folder: Path, mirror: str, suite: str, package: str) -> None:
    # Another vendor's archive fails here: it is not signed with Debian's keys.
    (folder / "sources.list").write_text(f"deb [signed-by={ARCHIVE_KEYS}] {mirror} {suite} main\n")
    (folder / "lists" / "partial").mkdir(parents=True)
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",  # apt's own user cannot write to a temporary folder of root's
        "APT::Update::Error-Mode": "any",  # else an archive that cannot be reached counts as a success
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*apt, "update"], folder)
    _run([*apt, "download", package], folder)
    _run(["dpkg", "-x", *(str(file) for file in folder.glob("*.deb")), "unpacked"], folder)


def _run(command: list[str], folder: Path) -> str:
    """The output of a command, run in `folder`."""
    try:
        finished = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=APT_LIMIT_SECONDS,
        )
    except FileNotFoundError as error:
        raise PackageError(f"there is no `{command[0]}` here") from error
    except subprocess.TimeoutExpired:
        raise PackageError(f"`{command[0]}` was not done after {APT_LIMIT_SECONDS:g} seconds") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise PackageError(f"`{command[0]}` failed: {said[-1] if said else error.returncode}") from error
    return finished.stdout
