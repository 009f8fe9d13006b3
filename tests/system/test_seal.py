"""What a function finds when it looks around in its sandbox: nothing that is not its own."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import CallCancelledError, remote
from readie.protocol.envelope import CallState
from tests.local_stack import LocalStack, eventually

SECONDS = 60
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("stack")


@pytest.fixture(params=["restored", "cold"])
def start(request: pytest.FixtureRequest) -> str:
    """How the sandbox starts: it must be sealed either way."""
    return str(request.param)


def look(function: readie.RemoteFunction[..., Any], start: str, *arguments: object) -> Any:
    way = {"disable_optimized_execution": True} if start == "cold" else {"checkpoint_id": "checkpoint_0"}
    call = function.options(**way).spawn(*arguments)
    seen = call.result(timeout=SECONDS)
    assert call.report().start == start
    return seen


@remote
def rights() -> dict[str, Any]:
    import ctypes
    import os
    import resource
    import socket
    import stat
    from pathlib import Path

    libc = ctypes.CDLL(None, use_errno=True)

    def allowed(action: Any) -> bool:
        try:
            action()
        except (OSError, ValueError):
            return False
        return True

    def open_device(kind: int, major: int, minor: int) -> None:
        path = f"/tmp/{kind}-{major}-{minor}"
        os.mknod(path, kind | 0o600, os.makedev(major, minor))
        os.close(os.open(path, os.O_RDONLY))

    def mount() -> None:
        if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
            raise OSError(ctypes.get_errno(), "mount")

    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    actions = {
        "become root": lambda: os.setuid(0),
        "own": lambda: os.chown("/tmp", 0, 0),
        "open the host's memory": lambda: open_device(stat.S_IFCHR, 1, 1),
        "open a disk": lambda: open_device(stat.S_IFBLK, 8, 0),
        "change the root": lambda: os.chroot("/tmp"),
        "mount": mount,
        "name the host": lambda: socket.sethostname("other"),
        "ask the kernel": lambda: Path("/proc/sysrq-trigger").write_text("b"),
        "reach the hardware": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        "reach the hypervisor": lambda: socket.socket(socket.AF_VSOCK),
        "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)),
    }
    return {
        "ids": (os.getresuid(), os.getresgid(), os.getgroups()),
        "capabilities": {int(value, 16) for name, value in status.items() if name.startswith("Cap")},
        "no new privileges": libc.prctl(39, 0, 0, 0, 0),
        "allowed": [name for name, action in actions.items() if allowed(action)],
    }


def test_it_has_no_rights(start: str) -> None:
    assert look(rights, start) == {
        "ids": ((65534,) * 3, (65534,) * 3, []),
        "capabilities": {0},
        "no new privileges": 1,
        "allowed": [],
    }


@remote
def mounts() -> list[tuple[str, str, bool]]:
    from pathlib import Path

    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [(destination, kind, "ro" in options.split(",")) for _, destination, kind, options, *_ in lines]


def test_of_the_host_it_sees_what_is_listed_and_only_to_read(start: str) -> None:
    seen = look(mounts, start)
    of_the_host = {destination: read_only for destination, kind, read_only in seen if kind == "9p"}
    prefix = str(Path(sys.base_prefix))
    listed = {
        "/",
        "/usr",
        "/lib",
        "/lib64",
        "/bin",
        "/opt/readie",
        "/opt/packages",
        "/opt/layers",
        "/run/readie",
        prefix,
    }

    assert of_the_host.keys() <= listed
    assert {destination for destination, read_only in of_the_host.items() if not read_only} == {"/run/readie"}
    assert {kind for _, kind, _ in seen} == {"9p", "tmpfs", "proc", "sysfs", "dev", "devpts"}


@remote
def exists(paths: list[str]) -> list[str]:
    import os

    return [path for path in paths if os.path.lexists(path)]


def test_the_hosts_own_files_are_not_there(stack: LocalStack, start: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    hidden = [stack.home, stack.run_folder, tmp_path, ROOT, Path("/etc/shadow"), Path("/etc/resolv.conf"), Path("/var")]
    there = [str(path) for path in hidden if path.exists()]
    assert len(there) >= 5, "what is to be hidden is there to be seen"

    assert look(exists, start, [*there, "/home", "/boot", "/mnt", "/srv", "/dev/mem", "/dev/kvm"]) == []


@remote
def writable(paths: list[str]) -> list[str]:
    import contextlib
    import os
    from pathlib import Path

    changed = []
    for path in map(Path, paths):
        entries = sorted(path.iterdir())
        victim = next((entry for entry in entries if entry.is_file()), path / "nothing")
        for name, action in {
            "create": (path / "new").touch,
            "make a folder": (path / "folder").mkdir,
            "link": lambda path=path: (path / "link").symlink_to("/tmp"),
            "append": lambda victim=victim: victim.open("ab").close(),
            "remove": lambda victim=victim: victim.unlink(),
            "rename": lambda victim=victim: victim.rename(victim.with_name("other")),
            "allow": lambda path=path: path.chmod(0o777),
            "touch": lambda victim=victim: os.utime(victim),
        }.items():
            with contextlib.suppress(OSError):
                action()
                changed.append(f"{name} in {path}")
    return changed


def test_programs_and_packages_can_not_be_changed(start: str) -> None:
    places = ["/", "/usr", "/usr/bin", "/opt", "/opt/readie", "/opt/readie/workers/executor", "/opt/packages"]
    places += ["/etc", "/run", "/run/readie", sys.base_prefix, f"{sys.base_prefix}/bin"]
    assert look(writable, start, places) == []


@remote
def environments() -> list[str]:
    from pathlib import Path

    return [path.read_bytes().decode() for path in Path("/proc").glob("[0-9]*/environ")]


def test_nothing_of_the_workers_environment_is_in_it(stack: LocalStack, start: str) -> None:
    own = Path(f"/proc/{stack.pid('worker1')}/environ").read_bytes().decode()
    assert "SECRET=of the worker" in own
    assert str(stack.home) in own

    (seen,) = look(environments, start)
    names = {entry.partition("=")[0] for entry in seen.split("\0") if entry}
    assert names == {"HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
    assert "of the worker" not in seen
    assert str(stack.home) not in seen


@remote
def reachable(addresses: list[tuple[str, int]], abstract: str) -> dict[str, Any]:
    import socket

    reached: list[Any] = []
    for host, port in addresses:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as connection:
                connection.settimeout(5)
                try:
                    connection.connect((host, port))
                    connection.send(b"PING\r\n")
                    if kind is socket.SOCK_STREAM or host not in ("127.0.0.1", "::1"):
                        reached.append((host, port, kind.name))
                except OSError:
                    pass
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect("\0" + abstract)
            reached.append(abstract)
        except OSError:
            pass
    try:
        names = socket.getaddrinfo("localhost.localdomain.example", 80)
    except OSError:
        names = []
    return {"reached": reached, "names": names, "interfaces": [name for _, name in socket.if_nameindex()]}


def test_it_has_no_network(stack: LocalStack, start: str) -> None:
    redis_port = int(stack.redis_url.rpartition(":")[2].partition("/")[0])
    abstract = f"readie-test-{os.getpid()}"
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    with socket.socket(socket.AF_UNIX) as listener, socket.create_connection(("127.0.0.1", redis_port)):
        listener.bind("\0" + abstract)
        listener.listen()
        hosts = {"127.0.0.1", "::1", "169.254.169.254", "192.0.2.1", *own}
        seen = look(reachable, start, [(host, redis_port) for host in sorted(hosts)], abstract)

    assert seen["reached"] == []
    assert seen["names"] == []
    assert set(seen["interfaces"]) <= {"lo"}


@remote
def neighbours() -> dict[str, Any]:
    from pathlib import Path

    def names(folder: str) -> list[str]:
        return sorted(path.name for path in Path(folder).iterdir())

    return {
        "control": names("/run/readie"),
        "run": names("/run"),
        "processes": [name for name in names("/proc") if name.isdigit()],
        "tmp": names("/tmp"),
        "shared memory": names("/dev/shm"),
    }


@remote
def leave_traces_and_stay() -> None:
    import time
    from pathlib import Path

    for folder in ("/tmp", "/dev/shm"):
        Path(folder, "trace").write_text("trace")
    time.sleep(1000)


def test_it_sees_no_other_sandbox(start: str) -> None:
    other = leave_traces_and_stay.options(disable_optimized_execution=start == "cold").spawn()
    eventually(lambda: other.status().state is CallState.RUNNING, "the other runs")
    try:
        seen = look(neighbours, start)
    finally:
        other.cancel()

    assert set(seen["control"]) <= {"executor.sock", "go"}
    assert seen["run"] == ["readie"]
    assert seen["processes"] == ["1"]
    assert seen["tmp"] == seen["shared memory"] == []
    with pytest.raises(CallCancelledError):
        other.result(timeout=SECONDS)
    assert look(neighbours, start)["tmp"] == [], "nothing passes from one call to the next"
