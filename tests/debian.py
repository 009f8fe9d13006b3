"""Programs that only tests need."""

import os
import shutil
import subprocess


def find_program(name: str, package: str | None = None) -> str:
    """Return a program's path; on Debian it is installed where it is missing. ``package``: if not of the same name."""
    if not (found := shutil.which(name)):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--no-install-recommends", package or name]):
            apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command]
            subprocess.run(apt, env=environment, check=True, stdout=subprocess.DEVNULL)
        found = shutil.which(name)
    assert found, f"these tests need {name} on PATH"
    return found
