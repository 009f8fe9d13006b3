"""The ledger's Lua scripts, each with what all of them know before it."""

from importlib.resources import files
from typing import Final

from redis import Redis
from redis.commands.core import Script

from readie.protocol import keys

ENDED_SESSION_SECONDS: Final = 3600
"""How long it is kept that, and why, a session has ended."""
_COMMON: Final = ("turns.lua", "capacity.lua", "session.lua", "end_call.lua", "end_session.lua", "news.lua")
"""What stands before every script, in this order."""
_KNOWN_TO_SCRIPTS: Final = {
    "WAITING": keys.WAITING,
    "WAITING_GROUP": keys.waiting_group(""),
    "WAITING_GROUPS": keys.WAITING_GROUPS,
    "WAITING_OF": keys.WAITING_OF,
    "WAITING_CLIENTS": keys.WAITING_CLIENTS,
    "TURNS": keys.TURNS,
    "EXPIRIES": keys.EXPIRIES,
    "DELAYED": keys.DELAYED,
    "STALE": keys.STALE,
    "CAPACITY": keys.CAPACITY,
    "SUBMIT_QUEUE": keys.SUBMIT_QUEUE,
    "WAKE": keys.WAKE,
    "REPLIES": keys.replies(""),
    "CONTROL": keys.worker_control(""),
    "READER_NEWS": keys.reader_news("", "").removesuffix(":"),
    "FORGED": keys.FORGED,
    "DEAD_LETTERS": keys.DEAD_LETTERS,
    "OUTPUT": keys.output(""),
    "VALUES": keys.values(""),
    "NEWS": keys.NEWS,
    "CALL": keys.call(""),
    "RESULT": keys.result(""),
    "PAYLOAD": keys.payload(""),
    "MESSAGE": keys.message(""),
    "PENDING": keys.PENDING,
    "SESSIONS": keys.SESSIONS,
    "SESSION": keys.session(""),
    "SESSION_CALLS": keys.session_calls(""),
    "SESSION_MEMORY": keys.session_memory(""),
    "EVICTED_SECONDS": str(ENDED_SESSION_SECONDS),
    "SESSION_WORD": keys.SESSION_WORD,
    "WORKER_SESSIONS": keys.worker_sessions(""),
    "WORKER_IDLE_SESSIONS": keys.worker_idle_sessions(""),
    "WORKER_SESSION_CALLS": keys.worker_session_calls(""),
    "SESSION_QUEUE": keys.session_queue(""),
    "WORKER_CALLS": keys.worker_calls(""),
    "WORKER_MEMORY": keys.worker_memory(""),
    "TOTAL": keys.TOTAL,
}
"""What every script finds as a variable."""
_WITHOUT_MEMORY: Final = frozenset(
    {"announce", "answer", "avoid", "bury", "cancel", "claim", "drop_held", "drop_waiting", "explain_waiting", "finish"}
    | {"forget", "give_back", "park", "place", "readmit", "release_delayed", "renew_router", "requeue", "retry"}
    | {"session_bind", "session_end", "session_join", "stop_values", "take", "take_values", "tell_ready", "uphold"}
    | {"watch", "withdraw"}
)
"""Scripts that a Redis out of memory must still run: only what lets calls end gives it memory back."""
_ALLOW_WITHOUT_MEMORY: Final = "redis.call('DEL', '')\n"
"""Redis refuses a script for want of memory at its first command that may take some, but never after a write."""


def register_scripts(redis: Redis) -> dict[str, Script]:
    """Return the scripts by name, without a word to Redis: it gets each with its first use."""
    scripts = files(__package__) / "scripts"
    names = "".join(f"local {name} = '{value}'\n" for name, value in _KNOWN_TO_SCRIPTS.items())
    common = names + "".join((scripts / "common" / name).read_text() for name in _COMMON)
    return {
        name: redis.register_script(
            (_ALLOW_WITHOUT_MEMORY if name in _WITHOUT_MEMORY else "") + common + path.read_text()
        )
        for path in scripts.iterdir()
        if (name := path.name.removesuffix(".lua")) != path.name
    }
