"""What calls find: ready sandboxes, else created ones, else none; with the real runsc."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local_stack import eventually
from workers.executor import wire
from workers.sandbox import quarantine
from workers.sandbox.demand import Demand
from workers.sandbox.filesystem import Filesystem, copy_executor
from workers.sandbox.host import SandboxHost
from workers.sandbox.processes import kill_processes_under, processes_under
from workers.sandbox.runsc import find_runsc
from workers.sandbox.sandbox import Sandbox, SandboxFailedError
from workers.sandbox.starter import Started
from workers.sandbox.supply import Ahead, SandboxSupply
from workers.sandbox.wanted import Source

SECONDS = 60.0
MB = 10**6
PLENTY = 2000 * MB

RunCall = Callable[..., Any]

pytestmark = pytest.mark.sandbox


class Anybody:
    """A caller who waits to the end."""

    cancelled = False

    def runs_in(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox


class Supply(SandboxSupply):
    """A supply with its host, which notes what it tells."""

    def __init__(self, host: SandboxHost, sources: dict[str | None, Source], **ahead: Any) -> None:
        self.host = host
        self.phases: list[str] = []
        self.changes = threading.Event()
        self.failures: list[tuple[str | None, str]] = []
        timeout = ahead.pop("start_timeout_seconds", SECONDS)
        plan = Ahead(**{"created_count": 0, "ready_bytes": PLENTY, "demand": Demand(), **ahead})
        super().__init__(
            host,
            sources,
            plan,
            changed=self.changes.set,
            failed=lambda name, error: self.failures.append((name, error.step)),
            start_timeout_seconds=timeout,
        )

    def give(self, checkpoint_id: str | None, caller: Any = None) -> Started:
        self.phases.clear()
        return self.start(checkpoint_id, caller or Anybody(), self.phases.append)

    def filled(self) -> dict[str | None, int]:
        assert self.wait_full(SECONDS)
        return self.ready_counts

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Return when ``condition`` holds, which is looked at after every change."""
        while True:
            self.changes.clear()
            if condition():
                return
            assert self.changes.wait(SECONDS), what


OpenSupply = Callable[..., Supply]


@pytest.fixture
def open_supply(run_dir: Path, filesystem: Filesystem) -> Iterator[OpenSupply]:
    """Make supplies; in the end nothing may be left of them."""
    with contextlib.ExitStack() as stack:

        def open_one(sources: dict[str | None, Source], runsc: Path | None = None, **ahead: Any) -> Supply:
            host = stack.enter_context(SandboxHost(run_dir / "supply", runsc or find_runsc(), filesystem))
            supply = Supply(host, sources, **ahead)
            stack.callback(supply.close)
            return supply

        yield open_one
    assert not (run_dir / "supply").exists()
    assert processes_under(run_dir / "supply") == []


def source(image: Path | None, saved_seconds: float = 0.2) -> Source:
    return Source(image, saved_seconds, 60 * MB)


def test_a_call_meets_a_ready_sandbox_that_no_other_call_gets(
    open_supply: OpenSupply, images: Path, run_call: RunCall
) -> None:
    supply = open_supply({"empty": source(images / "empty"), "numpy": source(images / "numpy")})
    assert supply.filled() == {"empty": 1, "numpy": 1}
    caller = Anybody()
    started = supply.give("numpy", caller)
    assert (started.pool, started.start, started.checkpoint_id) == ("ready", "restored", "numpy")
    assert supply.phases == ["sandbox", "start", "connect"]
    assert caller.sandbox is started.sandbox
    assert "numpy" in started.connection.hello.imported
    assert run_call(started.connection, lambda: __import__("sys").modules.get("numpy") is not None)

    assert supply.filled()["numpy"] >= 1, "it is replaced"
    other = supply.give("numpy")
    assert other.pool == "ready"
    assert other.sandbox.id != started.sandbox.id
    for each in (started, other):
        supply.discard(each)


def test_clones_that_were_made_ready_share_no_randomness(
    open_supply: OpenSupply, images: Path, run_call: RunCall
) -> None:
    supply = open_supply({"numpy": source(images / "numpy")})

    def draw() -> tuple[float, float, bytes]:
        import random
        import ssl

        import generators  # type: ignore[import-not-found]

        return random.random(), generators.generator.random(), ssl.RAND_bytes(8)

    drawn = []
    for _ in range(3):
        supply.filled()
        started = supply.give("numpy")
        assert started.pool == "ready"
        drawn.append(run_call(started.connection, draw))
        supply.discard(started)
    assert all(len(set(values)) == 3 for values in zip(*drawn, strict=True))


def test_without_a_ready_one_a_call_gets_a_created_one_and_without_that_a_new_one(
    open_supply: OpenSupply, images: Path, run_call: RunCall
) -> None:
    supply = open_supply({"empty": source(images / "empty")}, created_count=1, ready_bytes=0)
    assert supply.filled() == {}
    assert supply.created_count == 1
    supply.stop()
    pools = []
    for checkpoint_id in ("empty", None, "empty"):
        started = supply.give(checkpoint_id)
        pools.append((started.pool, started.start, started.checkpoint_id))
        assert run_call(started.connection, lambda: 1) == 1
        assert supply.phases == ["sandbox", "start", "connect"]
        supply.discard(started)
    assert pools == [("created", "restored", "empty"), ("none", "cold", None), ("none", "restored", "empty")]


def test_what_is_asked_for_more_often_is_kept_more_often(open_supply: OpenSupply, images: Path) -> None:
    supply = open_supply({"empty": source(images / "empty"), "numpy": source(images / "numpy")}, created_count=1)
    for _ in range(6):
        supply.discard(supply.give("empty"))
    counts = supply.filled()
    assert counts["empty"] > counts["numpy"] == 1
    assert supply.created_count == 1


def test_cold_starts_are_kept_ready_when_they_are_asked_for_or_there_is_nothing_else(
    open_supply: OpenSupply, images: Path, run_call: RunCall
) -> None:
    supply = open_supply({None: source(None)})
    assert supply.filled() == {None: 1}
    started = supply.give(None)
    assert (started.pool, started.start, started.checkpoint_id) == ("ready", "cold", None)
    assert started.connection.hello.start == "started"
    assert run_call(started.connection, lambda: 5) == 5
    supply.close()
    supply.host.close()

    supply = open_supply({None: source(None), "empty": source(images / "empty")})
    assert supply.filled() == {"empty": 1}
    supply.discard(supply.give(None))
    assert supply.filled() == {"empty": 1, None: 1}


def cpu_share(sandbox: Sandbox) -> int:
    """Return the weight of a sandbox's control group."""
    pid = (sandbox.folder / "pid").read_text()
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if Path(group).name == sandbox.id and (not controllers or "cpu" in controllers.split(",")):
            folder = Path("/sys/fs/cgroup") / controllers / group.lstrip("/")
            return int((folder / ("cpu.shares" if controllers else "cpu.weight")).read_text())
    pytest.skip("this machine has no control groups to make")


def test_what_is_made_ahead_has_its_full_share_of_the_cpu_once_a_call_has_it(
    open_supply: OpenSupply, images: Path
) -> None:
    sources = {"empty": source(images / "empty"), "numpy": source(images / "numpy")}
    supply = open_supply(sources, created_count=1)
    supply.filled()
    supply.stop()
    ready, created, new = (supply.give("numpy"), supply.give("numpy"), supply.give("numpy"))
    assert [started.pool for started in (ready, created, new)] == ["ready", "created", "none"]
    assert cpu_share(ready.sandbox) == cpu_share(created.sandbox) == cpu_share(new.sandbox)
    background = supply.host.take(background=True)
    assert cpu_share(background) < cpu_share(new.sandbox)
    supply.host.discard(background)


def test_measured_memory_stays_within_the_budget(open_supply: OpenSupply, images: Path) -> None:
    one = open_supply({"numpy": source(images / "numpy")})
    assert one.filled() == {"numpy": 1}
    size = one.ready_bytes
    assert size > 20 * MB, "it was measured"
    one.close()
    one.host.close()

    # Believed to be small, until the first was measured: by then there may be room for it alone.
    supply = open_supply({"numpy": Source(images / "numpy", 0.2, 1 * MB)}, ready_bytes=round(size * 1.5))
    for _ in range(6):
        supply.discard(supply.give("numpy"))
        assert supply.filled() == {"numpy": 1}
        assert 0 < supply.ready_bytes <= size * 1.5


def test_sandboxes_that_wait_use_no_cpu(
    open_supply: OpenSupply, images: Path, run_call: RunCall, run_dir: Path
) -> None:
    supply = open_supply({"empty": source(images / "empty")}, created_count=1)
    assert supply.filled() == {"empty": 1}
    supply.stop()
    sentries = [pid for pid in processes_under(run_dir / "supply") if program_of(pid).startswith("runsc-sandbox")]
    # The kernel stops a process a moment after it was told to.
    eventually(
        lambda: [state_of(pid) for pid in sentries] == ["T", "T"], "both the created and the ready one stand still"
    )
    for pool in ("ready", "created"):
        started = supply.give("empty")
        assert started.pool == pool
        assert run_call(started.connection, lambda: "runs again") == "runs again"
    assert "T" not in [state_of(pid) for pid in sentries]


def program_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_ready_sandbox_that_died_is_not_given_out_and_is_replaced(
    open_supply: OpenSupply, images: Path, run_call: RunCall, run_dir: Path
) -> None:
    supply = open_supply({"empty": source(images / "empty")}, created_count=1)
    assert supply.filled() == {"empty": 1}
    supply.stop()
    kill_processes_under(run_dir / "supply")
    started = supply.give("empty")
    assert started.pool == "none"
    assert run_call(started.connection, lambda: 1) == 1
    supply.close()
    supply.host.close()

    supply = open_supply({"empty": source(images / "empty")})
    assert supply.filled() == {"empty": 1}
    kill_processes_under(run_dir / "supply")
    supply.wait_until(lambda: supply.ready_counts == {}, "its death is noticed without a call")
    assert supply.filled() == {"empty": 1}
    assert supply.give("empty").pool == "ready"


def test_a_broken_image_is_left_alone_after_some_failures_and_tried_again_later(
    open_supply: OpenSupply,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = tmp_path / "numpy"
    shutil.copytree(images / "empty", image)
    whole = (image / "checkpoint.img").read_bytes()
    (image / "checkpoint.img").write_bytes(whole[: len(whole) // 2])
    # Whatever other tests of this process made of the loggers.
    logger = logging.getLogger("workers.sandbox.ready")
    monkeypatch.setattr(logger, "disabled", False)
    caplog.set_level(logging.WARNING, logger.name)
    logger.addHandler(caplog.handler)
    supply = open_supply({"broken": source(image), "empty": source(images / "empty")}, created_count=1)
    assert supply.filled() == {"empty": 1}
    logger.removeHandler(caplog.handler)
    failures = {record.message for record in caplog.records if "no ready sandbox of broken" in record.message}
    assert len(failures) == quarantine.FAILURES
    started = supply.give("broken")
    assert (started.start, started.checkpoint_id, started.pool) == ("cold", None, "created")
    assert started.fallback is not None
    assert "restores in a row failed here" in started.fallback.reason
    assert supply.failures == [("broken", "restore")] * quarantine.FAILURES + [("broken", "quarantine")]

    (image / "checkpoint.img").write_bytes(whole)
    monkeypatch.setattr(supply._starter._quarantine, "why", lambda *_: None)
    assert supply.filled()["broken"] >= 1
    assert supply.give("broken").start == "restored"


def test_a_restore_that_fails_is_a_cold_start_of_the_same_call(
    open_supply: OpenSupply, tmp_path: Path, run_call: RunCall
) -> None:
    (tmp_path / "nothing").mkdir()
    supply = open_supply({"broken": source(tmp_path / "nothing")}, ready_bytes=0)
    started = supply.give("broken")
    assert (started.start, started.checkpoint_id) == ("cold", None)
    assert started.fallback is not None
    assert "restoring nothing failed" in started.fallback.reason
    assert supply.phases == ["sandbox", "start", "sandbox", "start", "connect"]
    assert run_call(started.connection, lambda: 1) == 1
    unknown = supply.give("unheard_of")
    assert unknown.fallback is not None
    assert unknown.fallback.reason == "this worker has no such checkpoint"


@pytest.fixture
def hanging_runsc(tmp_path: Path) -> Path:
    """A runsc whose restores hang, because the sandbox stands still; then there is a file ``hangs`` beside it."""
    runsc = tmp_path / "runsc"
    runsc.write_text(
        f"""#!/bin/sh
        for word; do
            case "$word" in
                restore) restore=yes ;;
                --bundle=*) bundle="${{word#--bundle=}}" ;;
                --log=*) log="${{word#--log=}}" ;;
            esac
        done
        if [ "$restore" ]; then
            : >> "$log"
            kill -STOP "$(cat "$bundle/pid")"
            touch {tmp_path}/hangs
        fi
        exec {find_runsc()} "$@"
        """
    )
    runsc.chmod(0o755)
    return runsc


def test_a_restore_that_hangs_is_a_cold_start_of_the_same_call(
    open_supply: OpenSupply, images: Path, hanging_runsc: Path, run_call: RunCall
) -> None:
    sources = {"empty": source(images / "empty")}
    supply = open_supply(sources, hanging_runsc, ready_bytes=0, created_count=2, start_timeout_seconds=5.0)
    started = supply.give("empty")
    assert started.start == "cold"
    assert started.fallback is not None
    assert "did not end in time" in started.fallback.reason
    assert run_call(started.connection, lambda: 1) == 1


def test_a_supply_closes_while_a_restore_hangs(
    open_supply: OpenSupply, images: Path, hanging_runsc: Path, tmp_path: Path
) -> None:
    supply = open_supply({"empty": source(images / "empty")}, hanging_runsc, start_timeout_seconds=1000.0)
    eventually((tmp_path / "hangs").exists, "a restore hangs")
    supply.close()
    assert supply.ready_counts == {}


def test_an_image_that_speaks_another_protocol_is_a_cold_start_of_the_same_call(
    open_supply: OpenSupply, filesystem: Filesystem, run_dir: Path, tmp_path: Path, run_call: RunCall
) -> None:
    copy_executor(tmp_path / "executor")
    protocol = tmp_path / "executor" / "workers" / "executor" / "wire.py"
    version = f"WIRE_VERSION = {wire.WIRE_VERSION}"
    text = protocol.read_text()
    assert version in text
    protocol.write_text(text.replace(version, "WIRE_VERSION = 9999"))
    other = Filesystem(**{**vars(filesystem), "executor": tmp_path / "executor"})
    with SandboxHost(run_dir / "capture", find_runsc(), other) as host:
        sandbox = host.take()
        sandbox.start(timeout=SECONDS, imports=[])
        sandbox.wait_imported(timeout=SECONDS)
        sandbox.checkpoint(tmp_path / "image", timeout=SECONDS)
        host.discard(sandbox)

    supply = open_supply({"other": source(tmp_path / "image")}, ready_bytes=0)
    started = supply.give("other")
    assert started.start == "cold"
    assert started.fallback is not None
    assert "9999" in started.fallback.reason
    assert run_call(started.connection, lambda: 1) == 1


class GivesUp(Anybody):
    """A caller who loses interest as soon as it hears of a sandbox."""

    def __init__(self) -> None:
        self.heard_of: list[Sandbox] = []

    def runs_in(self, sandbox: Sandbox) -> None:
        self.heard_of.append(sandbox)
        raise InterruptedError


@pytest.mark.parametrize("ready_bytes", [0, PLENTY])
def test_a_call_that_was_cancelled_leaves_no_sandbox(open_supply: OpenSupply, images: Path, ready_bytes: int) -> None:
    supply = open_supply({"empty": source(images / "empty")}, ready_bytes=ready_bytes)
    supply.filled()
    supply.stop()
    caller = GivesUp()
    with pytest.raises(InterruptedError):
        supply.give("empty", caller)
    (sandbox,) = caller.heard_of
    eventually(lambda: not sandbox.alive, "it ends")
    assert supply.give("empty").sandbox is not sandbox


class KilledAtOnce(Anybody):
    """A caller who is cancelled while its sandbox starts."""

    def runs_in(self, sandbox: Sandbox) -> None:
        if self.cancelled:
            raise InterruptedError
        self.cancelled = True
        sandbox.kill()


def test_a_restore_that_a_cancelled_call_broke_off_says_nothing_about_the_image(
    open_supply: OpenSupply, images: Path
) -> None:
    supply = open_supply({"empty": source(images / "empty")}, ready_bytes=0)
    for _ in range(quarantine.FAILURES):
        with pytest.raises(InterruptedError):
            supply.give("empty", KilledAtOnce())
    assert supply.give("empty").start == "restored"


def test_a_closed_supply_still_gives_sandboxes_but_makes_none_ahead(
    open_supply: OpenSupply, images: Path, run_call: RunCall
) -> None:
    supply = open_supply({"empty": source(images / "empty")}, created_count=2)
    assert supply.filled() == {"empty": 1}
    supply.close()
    assert supply.ready_counts == {}
    assert supply.created_count == 0
    started = supply.give("empty")
    assert started.pool == "none"
    assert run_call(started.connection, lambda: 1) == 1
    supply.close()


def test_no_sandbox_at_all_is_told_to_the_caller(
    run_dir: Path, filesystem: Filesystem, images: Path, tmp_path: Path
) -> None:
    wrong = Filesystem(**{**vars(filesystem), "packages": tmp_path / "missing"})
    with SandboxHost(run_dir / "wrong", find_runsc(), wrong) as host:
        supply = Supply(host, {"empty": source(images / "empty")}, created_count=1)
        with pytest.raises(SandboxFailedError, match="creating the sandbox failed"):
            supply.give("empty")
        supply.close()
