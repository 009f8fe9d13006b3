"""Programs that only tests need."""

import os
import shutil
import subprocess


def find_program(name: str) -> str:
    """Return a program's path; on Debian it is installed, from the package of its name, where it is missing."""
    if not (found := shutil.which(name)):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--no-install-recommends", name]):
            apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command]
            subprocess.run(apt, env=environment, check=True, stdout=subprocess.DEVNULL)
        found = shutil.which(name)
    assert found, f"these tests need {name} on PATH"
    return found
