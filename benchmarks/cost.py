"""What a cluster costs: memory and processor time at rest, and what a call asks of Redis."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from redis import Redis

from readie.ledger.sessions import SessionLedger

from .calls import size, warm
from .cluster import Cluster, cluster, cpu_seconds, megabytes
from .peers import PEERS, Submit
from .results import EXACT_MARGIN, Check, Ratio, Section, Table
from .start import IMPORT_SETS

_MOST_ROUND_TRIPS = 8
_UNTIL_PAUSED_SECONDS = 4.0
"""After which the sandbox of a session is surely paused, see ``workers.sessions``."""


@dataclass(frozen=True)
class Amounts:
    """How much is measured."""

    rest_seconds: float
    calls: int
    ready_calls: int


FULL = Amounts(rest_seconds=20, calls=400, ready_calls=12)


@dataclass(frozen=True)
class _Asked:
    """What calls asked of Redis, for each of them."""

    commands: dict[str, float]
    """Of clients: each is a round trip."""
    inside: float
    """Commands that scripts ran."""
    received_bytes: float
    sent_bytes: float
    kept_bytes: float | None
    """More in Redis' memory than before, as long as results are kept; of one call alone it can't be told."""


def run(amounts: Amounts) -> Section:
    """Measure."""
    section = Section("cost", "What it costs", {"rest seconds": amounts.rest_seconds})
    with cluster() as where, contextlib.ExitStack() as stack:
        pandas = where.remote(IMPORT_SETS["pandas"].function)
        for _ in range(6):
            pandas()
        idle, at_work = where.session(), where.session()
        for session in (idle, at_work):
            stack.callback(session.close)
            pandas.options(session=session)()
        where.remote(begin_a_thread, {"session": at_work})()
        where.settle()
        time.sleep(_UNTIL_PAUSED_SECONDS)
        names = {idle.id: "an idle session's sandbox, pandas", at_work.id: "one with a thread that waits, pandas"}
        _rest(section, where, names, amounts.rest_seconds)
        submit = warm(where, 1, stack)
        celery = stack.enter_context(PEERS["celery"](where.redis_url))
        fresh = where.remote(size)

        asked = {
            "readie, warm": _ask(where.redis, partial(_call, submit), amounts.calls),
            "readie, ready": _ask(where.redis, partial(fresh, b""), amounts.ready_calls, where.settle),
            "celery": _ask(where.redis, partial(_call, celery), amounts.calls),
        }
    _fill(section, asked)
    return section


def begin_a_thread() -> None:
    """Begin what goes on in a session between its calls."""
    import threading

    threading.Thread(target=threading.Event().wait, daemon=True).start()


def _rest(section: Section, where: Cluster, sessions: dict[str, str], seconds: float) -> None:
    parts = _parts(where)
    sandboxes = {one["id"]: _kind(one, sessions) for worker in where.inspect("sandboxes") for one in worker}
    processes = {f"{kind} {name}": _processes_of(name) for name, kind in sandboxes.items()}
    before = {pid: cpu_seconds(pid) for pids in [*parts.values(), *processes.values()] for pid in pids}
    time.sleep(seconds)
    used = {pid: cpu_seconds(pid) - ticks for pid, ticks in before.items()}
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, pids in parts.items():
        found[name].append((sum(map(megabytes, pids)), sum(used[pid] for pid in pids) / seconds))
    for name, pids in processes.items():
        found[name.rpartition(" ")[0]].append((sum(map(megabytes, pids)), sum(used[pid] for pid in pids) / seconds))
    rows = []
    for what, values in found.items():
        section.add({"at rest": what, "what": "memory"}, "MB", [memory for memory, _ in values])
        section.add({"at rest": what, "what": "processor"}, "share", [share for _, share in values])
        rows.append(
            [what, len(values), median(memory for memory, _ in values), 100 * median(share for _, share in values)]
        )
    section.tables.append(
        Table(
            "At rest, each",
            ["what", "how many", "memory MB", "percent of a core"],
            rows,
            "Memory is proportional (PSS): shared pages count in parts.",
        )
    )


def _parts(where: Cluster) -> dict[str, list[int]]:
    state = json.loads((where.home / "stack.json").read_text())
    pids = {name: [int(part["process"]["pid"])] for name, part in state["parts"].items()}
    return {**pids, "supervisor": [int(state["supervisor"]["pid"])]}


def _kind(sandbox: dict[str, Any], sessions: dict[str, str]) -> str:
    if sandbox["state"] == "ready":
        return f"ready sandbox, {sandbox['checkpoint'] or 'cold'}"
    return sessions[sandbox["session"]] if sandbox["state"] == "idle" else f"{sandbox['state']} sandbox"


def _processes_of(sandbox: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and re.search(rf"\b{sandbox}\b", (entry / "cmdline").read_bytes().decode()):
                found.append(int(entry.name))
    return found


def _ask(redis: Redis, call: Callable[[], Any], calls: int, before: Callable[[], None] | None = None) -> _Asked:
    """Return what so many calls ask; what ``before`` each of them does is left out."""
    # All of them at once where nothing comes between them: each look at Redis' counters is a command, too.
    at_once, times = (1, calls) if before else (calls, 1)
    for _ in range(2):
        call()
    own = _difference(_totals(redis), _totals(redis))
    found = [0.0, 0.0, 0.0]
    for _ in range(times):
        if before:
            before()
        totals = _totals(redis)
        for _ in range(at_once):
            call()
        asked = _difference(own, _difference(totals, _totals(redis)))
        found = [sum(pair) for pair in zip(found, asked, strict=True)]
    commands, inside = _commands(redis, call, at_once, times, before)
    return _Asked(
        {name: count / calls for name, count in commands.most_common() if count / calls >= 0.1},
        inside / calls,
        found[0] / calls,
        found[1] / calls,
        None if before else found[2] / calls,
    )


def _call(submit: Submit) -> None:
    submit(b"")()


def _totals(redis: Redis) -> tuple[float, ...]:
    """Return the bytes that Redis has received, has sent, and holds."""
    stats = redis.info("stats")
    memory = redis.info("memory")
    return stats["total_net_input_bytes"], stats["total_net_output_bytes"], memory["used_memory"]


def _difference(earlier: tuple[float, ...], later: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(after - before for before, after in zip(earlier, later, strict=True))


def _commands(
    redis: Redis, call: Callable[[], Any], at_once: int, times: int, before: Callable[[], None] | None
) -> tuple[Counter[str], int]:
    """Return the commands that clients send during these calls, and how many more scripts run."""
    sent: Counter[str] = Counter()
    inside = 0
    scripts = {script.sha: name for name, script in SessionLedger(redis)._scripts.items()}  # noqa: SLF001
    mark = uuid.uuid4().hex
    marks = 0
    with redis.monitor() as monitor:
        heard = monitor.listen()
        for _ in range(times):
            if before:
                before()
            redis.echo(mark)
            for _ in range(at_once):
                call()
            redis.echo(mark)
        for command in heard:
            words = str(command["command"]).split()
            if mark in words:
                marks += 1
                if marks == 2 * times:
                    return sent, inside
            elif marks % 2 == 0:
                continue
            elif command["client_type"] == "lua":
                inside += 1
            else:
                name = words[0].upper()
                sent[f"{name} {scripts.get(words[1], words[1][:8])}" if name == "EVALSHA" else name] += 1
    raise RuntimeError("Redis' monitor ended")


def _fill(section: Section, asked: dict[str, _Asked]) -> None:
    names = list(asked)
    commands = list(dict.fromkeys(command for one in asked.values() for command in one.commands))
    section.tables.append(
        Table(
            "Commands that Redis gets, for each call",
            ["command", *names],
            [
                *([command, *(asked[name].commands.get(command) for name in names)] for command in commands),
                ["together", *(sum(asked[name].commands.values()) for name in names)],
            ],
            "From all processes. Those that come less than once in ten calls are left out: heartbeats and the like.",
        )
    )
    section.tables.append(
        Table(
            "Bytes, for each call",
            ["", *names],
            [
                ["Redis receives", *(asked[name].received_bytes for name in names)],
                ["Redis sends", *(asked[name].sent_bytes for name in names)],
                ["kept as long as the result", *(asked[name].kept_bytes for name in names)],
                ["commands inside of scripts", *(asked[name].inside for name in names)],
            ],
        )
    )
    for name, one in asked.items():
        section.add({"system": name, "what": "round trips"}, "1", [sum(one.commands.values())])
        if one.kept_bytes is not None:
            section.add({"system": name, "what": "kept"}, "bytes", [one.kept_bytes])
    trips = sum(asked["readie, warm"].commands.values())
    section.ratios["round trips of a warm call"] = Ratio(trips, "lower", EXACT_MARGIN)
    section.checks.append(Check("round trips of a warm call", trips, "at most", _MOST_ROUND_TRIPS))
