"""Whether a runsc can checkpoint and restore on this machine, and which flags its commands know.

`probe` starts this file again in a PID and a mount namespace of its own. A runsc that hangs, as older ones do on
restore, leaves processes that have detached from whoever started them; they all end with the namespace, and so do
the mounts. Needs root on Linux, and `unshare` and `timeout`, which every Linux distribution has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

# What runs in the sandbox: it must come back after the restore with the token it drew before the checkpoint.
SANDBOX_PROGRAM = """
import os, sys, time
folder = sys.argv[1]
token = os.urandom(16).hex()
def tell(name):
    with open(f"{folder}/{name}.part", "w") as part:
        part.write(token)
    os.rename(f"{folder}/{name}.part", f"{folder}/{name}")
tell("before")
while not os.path.exists(f"{folder}/restored"):
    time.sleep(0.005)
tell("after")
"""
ANSWER_LIMIT_SECONDS = 10.0
TIMEOUT_KILLED = 137  # what `timeout --signal=KILL` exits with


class ProbeError(Exception):
    """The program is no runsc that can be used; the text says at which step it failed and how."""


@dataclass(frozen=True)
class Features:
    """What a runsc says of itself. Flag names are without dashes, sorted."""

    version: str
    checkpoint_flags: list[str]
    restore_flags: list[str]


@dataclass(frozen=True)
class Report(Features):
    """A runsc that has passed; `probe_seconds` is the wall time of the whole probe."""

    probe_seconds: float


def probe(runsc: Path, *, limit_seconds: float) -> Report:
    """Checkpoint and restore a small Python process with `runsc`.

    Raises `ProbeError` when that fails or is not over after `limit_seconds`; nothing of it is left in either case.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="readie-probe-") as name:
        folder = Path(name)
        # `timeout` is the first process of the namespace and not its parent: `unshare` then returns only when
        # the kernel has ended every process in it, so the folder can be removed.
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command += ["timeout", "--signal=KILL", str(limit_seconds)]
        command += [sys.executable, "-I", __file__, str(runsc.absolute()), name]
        with (folder / "log").open("wb") as log:
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", check=False
            ).returncode
        if status:
            step = _read(folder / "step") or "starting the probe"
            if status == TIMEOUT_KILLED:
                raise ProbeError(f"{step}: hung, and was killed after {limit_seconds:g} seconds")
            raise ProbeError(f"{step}: {_last_line(folder / 'log') or f'exit status {status}'}")
        features = json.loads(_read(folder / "features"))
    return Report(**features, probe_seconds=round(time.monotonic() - started, 2))


def features_of(runsc: Path, log: Path) -> Features:
    """Ask `runsc` for its version and its flags; what it prints to stderr goes to `log`.

    Raises `ProbeError` when the program does not answer as a runsc does.
    """

    def ask(*arguments: str) -> str:
        answer = log.with_name("answer")
        command = [str(runsc), *arguments]
        with log.open("ab") as err, answer.open("wb") as out:
            try:
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False, timeout=ANSWER_LIMIT_SECONDS
                )
            except subprocess.TimeoutExpired:
                raise ProbeError(f"no answer to {arguments} within {ANSWER_LIMIT_SECONDS:g} seconds") from None
        return _read(answer)

    version = re.match(r"runsc version ([\w.+~-]+)$", ask("--version"), re.MULTILINE)
    if version is None:
        raise ProbeError("it does not answer `--version` as a runsc does")
    flags = {
        command: sorted({*re.findall(r"^\s+--?([a-z][\w-]*)", ask("help", command), re.MULTILINE)} - {"h", "help"})
        for command in ("checkpoint", "restore")
    }
    return Features(version.group(1), checkpoint_flags=flags["checkpoint"], restore_flags=flags["restore"])


def _run_inside(runsc: Path, folder: Path) -> None:
    """The probe's steps, one after the other and without time limits: they end with the namespace."""

    def step(text: str) -> None:
        (folder / "step").write_text(text)

    step("asking for its version and flags")
    features = features_of(runsc, folder / "log")

    signals = folder / "signals"
    signals.mkdir()
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps(_spec(signals)))
    command = [str(runsc), f"--root={folder / 'state'}", "--platform=systrap", "--network=none", "--ignore-cgroups"]
    command += ["--overlay2=root:memory", "--host-uds=all"]  # a worker needs these two known
    image = f"--image-path={folder / 'image'}"
    wanted = {"compression": "--compression=none", "exclude-committed-zero-pages": "--exclude-committed-zero-pages"}
    extra = [flag for name, flag in wanted.items() if name in features.checkpoint_flags]

    # Children inherit the log file and never a pipe: a sandbox holds what it inherits for its whole life.
    step("starting a sandbox")
    sandbox = subprocess.Popen([*command, "run", f"--bundle={bundle}", "original"])
    while not (signals / "before").exists():
        if sandbox.poll() is not None:
            raise subprocess.CalledProcessError(sandbox.returncode or 1, "runsc run")
        time.sleep(0.005)

    step("taking a checkpoint")
    subprocess.run([*command, "checkpoint", *extra, image, "original"], check=True)
    sandbox.wait()

    step("restoring")
    (signals / "restored").touch()
    subprocess.run([*command, "restore", f"--bundle={bundle}", image, "clone"], check=True)
    if _read(signals / "after") != _read(signals / "before"):
        raise ProbeError("the restored process lost its memory")
    (folder / "features").write_text(json.dumps(vars(features)))


def _spec(signals: Path) -> dict[str, object]:
    # The host's files, read-only, because Python may be anywhere; the program run with them is the one above.
    # Those two capabilities let it read a Python that belongs to another user.
    capabilities = ["CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"]
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [sys.executable, "-I", "-S", "-c", SANDBOX_PROGRAM, str(signals)],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "root": {"path": "/", "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": str(signals), "type": "bind", "source": str(signals), "options": ["rbind", "rw"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _last_line(file: Path) -> str:
    lines = [line.strip() for line in _read(file).splitlines() if line.strip()]
    return lines[-1] if lines else ""


if __name__ == "__main__":
    try:
        _run_inside(Path(sys.argv[1]), Path(sys.argv[2]))
    except (OSError, ProbeError) as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # what runsc printed is the last line of the log
