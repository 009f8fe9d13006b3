"""Names of every Redis key, in one place.

``OWNERSHIP`` of each key is stated beside it: who writes it and what ends it.
"""

from typing import Final

PREFIX: Final = "readie:"

TASK_NAME: Final = "readie.execute"
EXPLAIN_TASK: Final = "readie.explain"
"""Marks an item of the submit queue that is a question."""
SUBMIT_QUEUE: Final = "readie.submit"
"""Celery queue (a Redis list) that clients push to and routers take from."""

PENDING: Final = PREFIX + "pending"
"""Sorted set: id of every call that has not ended, by submit time. A call's end removes its member."""
WAITING: Final = PREFIX + "waiting"
"""Sorted set: ids of the calls that no worker can take now, in the order in which they shall run. Placement or the
call's end removes the member."""
WAITING_GROUPS: Final = PREFIX + "waiting-groups"
"""Hash: why the calls of each group wait. A group's last call removes the field."""
WAITING_OF: Final = PREFIX + "waiting-of"
"""Hash: the client of each waiting call, by call id. Placement or the call's end removes the field."""
WAITING_CLIENTS: Final = PREFIX + "waiting-clients"
"""Hash: how many calls of each client wait. A client's last call removes the field."""
TURNS: Final = PREFIX + "turns"
"""Hash: the turn that has come, by priority, and each waiting client's next turn, by priority and client. A client's
last waiting call removes its fields, the last of all the key."""
EXPIRIES: Final = PREFIX + "expiries"
"""Sorted set: ids of the calls that must begin before a time, by that time (Redis clock, seconds). The call's beginning
or end removes the member."""
DELAYED: Final = PREFIX + "delayed"
"""Sorted set: ids of the queued calls that are to be run again at a time, by that time (Redis clock, seconds). A router
takes the member out when the time has come; the call's end removes it before."""
CAPACITY: Final = PREFIX + "capacity"
"""Counter of the events that may let a waiting call run: a call ended, a worker came. One key, never removed."""
STALE: Final = PREFIX + "stale"
"""Counter of the messages and ends of attempts that had moved on, which were dropped. One key, never removed."""
FORGED: Final = PREFIX + "forged"
"""Counter of what was refused because it was not signed as it must be. One key, never removed."""
DEAD_LETTERS: Final = PREFIX + "dead-letters"
"""List of unreadable messages with the reason, newest first, cut to a fixed length."""
SESSIONS: Final = PREFIX + "sessions"
"""Sorted set: ids of the sessions that have not ended, by the time of their first call (Redis clock, seconds). A
session's end removes the member."""
WORKERS: Final = PREFIX + "workers"
"""Sorted set: worker name by the time its lease ends (Redis clock, seconds). Recovery removes the member."""
ROUTERS: Final = PREFIX + "routers"
"""Sorted set: router id by the time its lease ends (Redis clock, seconds). Recovery removes the member."""

TOTAL: Final = "="
"""A field of a hash that is by call id otherwise; no id has this character."""
SESSION_WORD: Final = "session:"
"""Comes before a sandbox's id on a worker's control channel: its session has ended."""
WAKE: Final = "wake"
"""The one item on the submit queue that is not a message: it asks a router to look at the waiting calls."""

WISH_WORD: Final = "wish "
"""Stands on the submit queue before the id of a :func:`wish`."""

NEWS: Final = "news "
"""Stands before the call's id in a word that something of it is to be read, or was."""


def call(call_id: str) -> str:
    """Hash: the record of one call. Expires with its result."""
    return f"{PREFIX}call:{call_id}"


def message(call_id: str) -> str:
    """Hash: what a call was ``submitted`` with, the same ``addressed`` to its session, and after which error it is run
    ``again``. Apart from the record, as small payloads and what functions raise are here: who may look at calls need
    not see those. Removed when the call ends."""
    return f"{PREFIX}message:{call_id}"


def waiting_group(group: str) -> str:
    """Sorted set: the calls of :data:`WAITING` that need the same of a worker; a router names the group after that."""
    return f"{PREFIX}waiting:{group}"


def payload(call_id: str) -> str:
    """String: the pickled function and arguments above the inline limit. Removed when the call ends."""
    return f"{PREFIX}payload:{call_id}"


def value(call_id: str, attempt: int) -> str:
    """String: one attempt's pickled result above the inline limit. Expires with the result."""
    return f"{PREFIX}value:{call_id}:{attempt}"


def output(call_id: str) -> str:
    """Stream: what a call has printed, each entry named after the output's length with it; the oldest go when it is
    too long. Expires with the result."""
    return f"{PREFIX}output:{call_id}"


def values(call_id: str) -> str:
    """Stream: what a call has yielded and its reader has not taken yet, each entry named after attempt and number.
    Expires with the result."""
    return f"{PREFIX}values:{call_id}"


def result(call_id: str) -> str:
    """String: the result where Celery's ``AsyncResult`` looks for it; the channel of the same name announces it."""
    return f"celery-task-meta-{call_id}"


def replies(client_id: str) -> str:
    """Pub/sub channel on which one client hears of its calls' ends, and that there is output or a value to be read."""
    return f"{PREFIX}replies:{client_id}"


def worker(name: str) -> str:
    """Hash: what a worker announces. Its expiry is the worker's lease."""
    return f"{PREFIX}worker:{name}"


def worker_control(incarnation: str) -> str:
    """Pub/sub channel on which one worker process hears which of its calls to stop."""
    return f"{PREFIX}worker-control:{incarnation}"


def reader_news(incarnation: str, call_id: str) -> str:
    """Pub/sub channel on which one worker process hears that the reader of a call went on."""
    return f"{PREFIX}reader-news:{incarnation}:{call_id}"


def worker_calls(name: str) -> str:
    """Sorted set: ids of the calls a worker holds, by placement time; its size is the worker's load."""
    return f"{PREFIX}worker-calls:{name}"


def worker_memory(name: str) -> str:
    """Hash: a worker's reserved memory in bytes, by call id, and the sum as :data:`TOTAL`. Its last call removes it."""
    return f"{PREFIX}worker-memory:{name}"


def session(session_id: str) -> str:
    """Hash: the record of one session. Has no expiry while the session lives: its owner, or recovery when that is lost,
    ends it; it expires some time after that."""
    return f"{PREFIX}session:{session_id}"


def session_calls(session_id: str) -> str:
    """List: ids of the calls that wait for their turn in a session. Their turn or their end removes them."""
    return f"{PREFIX}session-calls:{session_id}"


def session_queue(sandbox: str) -> str:
    """List: the message of the call that a session's sandbox is to run, or the empty one that says that the session has
    ended. The session's end removes it, and lets that one expire."""
    return f"{PREFIX}session-queue:{sandbox}"


def worker_sessions(name: str) -> str:
    """Set: ids of the sessions whose sandbox is, or is to be, on a worker. The session's end removes the member."""
    return f"{PREFIX}worker-sessions:{name}"


def worker_idle_sessions(name: str) -> str:
    """Sorted set: those of :func:`worker_sessions` that are idle, by last use. A call or the session's end removes the
    member."""
    return f"{PREFIX}worker-idle-sessions:{name}"


def worker_session_calls(name: str) -> str:
    """Sorted set: ids of the calls that a worker holds for its sessions, by placement time. They take no slots. The
    call's end removes the member."""
    return f"{PREFIX}worker-session-calls:{name}"


def session_memory(session_id: str) -> str:
    """Field of :func:`worker_memory` for a session; no call's id has this character."""
    return f"={session_id}"


def worker_avoided(name: str) -> str:
    """Sorted set: checkpoints the worker failed to restore, by the time until which they are avoided. Expires then."""
    return f"{PREFIX}worker-avoided:{name}"


def worker_queue(name: str) -> str:
    """Celery's own direct queue of one worker (``worker_direct``)."""
    return f"{name}.dq2"


def wish(wish_id: str) -> str:
    """String: what a client wants a router to do with a call or a session that has the same owner as the id. A router
    removes it; it expires where there is none."""
    return f"{PREFIX}wish:{wish_id}"


def router_taken(router_id: str) -> str:
    """List: messages a router has taken off the submit queue and not yet settled."""
    return f"{PREFIX}router-taken:{router_id}"


def explanation(request_id: str) -> str:
    """List: a router's one answer to a question. Expires soon, or goes when it is read."""
    return f"{PREFIX}explanation:{request_id}"


def catalogue(digest: str) -> str:
    """String: a catalogue under the digest of its content. Expires unless a worker renews it."""
    return f"{PREFIX}catalogue:{digest}"


def traffic(flavor: str) -> str:
    """Sorted set: sets of imports as JSON, by how often calls needed them. Expires when no call comes for long."""
    return f"{PREFIX}traffic:{flavor}"


def traffic_day(flavor: str) -> str:
    """String: the day (since the epoch) on which the counts were last lowered. Expires with them."""
    return f"{PREFIX}traffic-day:{flavor}"
