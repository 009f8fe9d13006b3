"""Control groups, of whichever version this machine has; ordinary processes stand for sandboxes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.sandbox import limits
from workers.sandbox.abandoned import remove_abandoned_groups
from workers.sandbox.cgroup import Cgroup, Limits, MemoryHeldError, RunCgroups, open_cgroups, remove_leftover_cgroups
from workers.sandbox.hierarchy import CgroupsUnavailableError, find_hierarchy
from workers.sandbox.limits import limits_in_force
from workers.sandbox.run_folder import own, remove_leftovers
from workers.sandbox.runsc import entering

pytestmark = pytest.mark.sandbox

SECONDS = 60
MIB = 1 << 20

Spawn = Callable[..., "subprocess.Popen[str]"]


def nothing() -> None:
    """For groups that are not meant to run out of memory."""


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[RunCgroups]:
    groups = open_cgroups(tmp_path)
    assert groups is not None, limits_in_force()
    yield groups
    groups.close()
    assert left(tmp_path) == []


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Run Python in a group."""
    processes = []

    def run(group: Cgroup, program: str) -> subprocess.Popen[str]:
        command = [*entering(group.entries), sys.executable, "-c", program]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def left(run_dir: Path) -> list[Path]:
    """Return the folders of control groups that are named after ``run_dir``."""
    name = str(run_dir).replace("/", "%2F")
    return [path for path in Path("/sys/fs/cgroup").rglob(f"{name}*") if path.is_dir()]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


HOG = """
import os, time
if os.fork() == 0:
    held = []
    while True:
        held.append(bytearray(1 << 20))
time.sleep(1000)
"""


def test_a_group_out_of_memory_ends_as_one(groups: RunCgroups, spawn: Spawn) -> None:
    told = threading.Event()
    group = groups.create("a", Limits(memory_bytes=64 * MIB), told.set)
    parent = spawn(group, HOG)
    if find_hierarchy().version == 1:
        assert told.wait(SECONDS)
        group.remove()  # what the sandbox does when it is told

    assert parent.wait(SECONDS) == -9, "the child alone was above the limit"
    group.remove()


def test_what_ran_out_of_memory_says_so_and_how_much_it_held(groups: RunCgroups, spawn: Spawn) -> None:
    group = groups.create("a", Limits(memory_bytes=64 * MIB), nothing)
    assert not group.out_of_memory

    assert spawn(group, "held = bytearray(200 << 20)").wait(SECONDS) == -9
    assert group.out_of_memory
    assert 60 * MIB < group.memory_peak_bytes < 68 * MIB, "counted in batches of pages"
    group.remove()


def test_a_limit_can_be_raised_while_the_group_is_in_use(groups: RunCgroups, spawn: Spawn) -> None:
    group = groups.create("a", Limits(memory_bytes=64 * MIB), nothing)
    group.limit_memory(256 * MIB)

    assert spawn(group, "held = bytearray(128 << 20)").wait(SECONDS) == 0
    assert group.memory_peak_bytes > 128 * MIB
    assert not group.out_of_memory
    group.remove()


def test_a_limit_below_what_is_held_is_refused_or_ends_the_group(groups: RunCgroups, spawn: Spawn) -> None:
    group = groups.create("a", Limits(), nothing)
    process = spawn(group, "import time; held = bytearray(128 << 20); print('held', flush=True); time.sleep(1000)")
    assert line(process) == "held"
    try:
        group.limit_memory(64 * MIB)
    except MemoryHeldError:
        assert process.poll() is None
    else:
        assert process.wait(SECONDS) == -9
        assert group.out_of_memory
    group.remove()


SPIN = """
import time
ends = time.monotonic() + 1
while time.monotonic() < ends:
    pass
print(time.process_time())
"""


def test_cpu_time_is_bounded_and_given_back(groups: RunCgroups, spawn: Spawn) -> None:
    group = groups.create("a", Limits(cpu=0.1), nothing)
    bounded = float(line(spawn(group, SPIN)))
    group.limit_cpu(None)
    free = float(line(spawn(group, SPIN)))
    group.remove()

    assert bounded < 0.5 * free


def test_one_process_too_many_is_noted(groups: RunCgroups, spawn: Spawn) -> None:
    group = groups.create("a", Limits(pids=5), nothing)
    assert not group.out_of_pids
    program = """
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
except BlockingIOError:
    print("refused", flush=True)
"""
    assert line(spawn(group, program)) == "refused"
    assert group.out_of_pids
    group.remove()


def test_removing_a_group_ends_what_runs_in_it(groups: RunCgroups, spawn: Spawn) -> None:
    group = groups.create("a", Limits(), nothing)
    process = spawn(group, "import time; print('up', flush=True); time.sleep(1000)")
    assert line(process) == "up"
    group.remove()

    assert process.wait(SECONDS) == -9
    assert not any(entry.parent.exists() for entry in group.entries)
    group.remove()


def test_what_a_crashed_worker_left_is_removed_and_nothing_else(tmp_path: Path, spawn: Spawn) -> None:
    """Its groups may be where this process would make none: it may have been started from another group."""
    stage, neighbour = tmp_path / "worker1" / "1", tmp_path / "worker10"
    running = []
    hosts = []
    for run_dir in (stage, neighbour):
        run_dir.mkdir(parents=True)
        groups = open_cgroups(run_dir)
        assert groups is not None
        hosts.append(groups)
        running.append(
            spawn(groups.create("a", Limits(), nothing), "import time; print('up', flush=True); time.sleep(1000)")
        )
        assert line(running[-1]) == "up"
    crashed, bystander = running

    remove_leftovers(stage.parent)
    assert crashed.wait(SECONDS) == -9
    assert left(stage) == []
    assert bystander.poll() is None
    assert left(neighbour) != []
    remove_leftover_cgroups(neighbour)
    for groups in hosts:
        groups.close()


def test_a_record_that_names_foreign_groups_removes_none(tmp_path: Path, groups: RunCgroups) -> None:
    group = groups.create("a", Limits(), nothing)
    other = tmp_path / "other"
    other.mkdir()
    (other / "cgroups").write_text("\n".join(str(entry.parent.parent) for entry in group.entries))
    remove_leftover_cgroups(other)

    assert all(entry.exists() for entry in group.entries)
    group.remove()


def test_the_worker_is_told_which_limits_hold(tmp_path: Path) -> None:
    found = limits_in_force()

    assert found.problem == ""
    assert found.mechanism == f"control groups (version {find_hierarchy().version})"
    assert found.cpu is not None
    assert found.cpu >= 1
    assert found.memory_bytes > 64 * MIB
    assert [path for path in Path("/sys/fs/cgroup").rglob("*probe*") if path.is_dir()] == []


def test_a_worker_without_control_groups_does_not_pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise CgroupsUnavailableError("no group can be made in /sys/fs/cgroup: Read-only file system")

    monkeypatch.setattr(limits, "find_hierarchy", unavailable)
    found = limits_in_force()

    assert found.cpu is None
    assert "address space" in found.mechanism
    assert "Read-only file system" in str(found)
    assert "/sys/fs/cgroup" in str(found)


def test_the_time_to_make_and_remove_a_group_is_nothing_beside_a_sandbox(groups: RunCgroups) -> None:
    began = time.perf_counter()
    for number in range(20):
        groups.create(str(number), Limits(64 * MIB, 1.0, 64), nothing).remove()
    groups_seconds = time.perf_counter() - began
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)

    assert groups_seconds / 20 < time.perf_counter() - began


def test_groups_of_run_folders_that_nobody_owns_are_removed_when_they_are_empty(tmp_path: Path, spawn: Spawn) -> None:
    names = ("gone", "unlocked", "owned", "running", "without a lock")
    folders = {name: tmp_path / name for name in names}
    locks = {}
    for name, folder in folders.items():
        if name == "without a lock":
            folder.mkdir()
        else:
            locks[name] = own(folder)
    groups = {name: RunCgroups(find_hierarchy(), folder) for name, folder in folders.items()}
    made = {name: each.create("a", Limits(), nothing) for name, each in groups.items()}
    running = spawn(made["running"], "import time; print('up', flush=True); time.sleep(1000)")
    assert line(running) == "up"
    for name in ("gone", "unlocked", "running"):
        os.close(locks[name])
    shutil.rmtree(folders["gone"])

    remove_abandoned_groups()
    there = {name for name, group in made.items() if group.entries[0].exists()}
    running.kill()
    running.wait()
    for name in there:
        made[name].remove()
    for each in groups.values():
        each.close()
    os.close(locks["owned"])

    assert there == {"owned", "running", "without a lock"}
    assert left(folders["gone"]) == left(folders["unlocked"]) == []
