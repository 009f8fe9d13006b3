"""The rights of each role in Redis: which keys, commands and channels, and no others (``readie acl``).

Redis checks what scripts do against the rights of whoever runs them, so a role needs what its scripts touch. ``%R~`` is
a right to read, ``%W~`` one to write, ``~`` both; what stands in brackets is a right to these commands with these keys
alone. Needs Redis 7.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from .protocol import keys

ROLES: Final = ("router", "worker", "flower", "observer", "admin")
"""Every user but the clients."""

_TALK: Final = "+ping +hello +auth +select +client -client|tracking -@admin -@dangerous +time +multi +exec +discard"
"""Tracking would tell the names of everybody's keys. A right to CLIENT SETINFO alone needs Redis 7.2."""
_SCRIPTS: Final = "+eval +evalsha +script|load +script|exists"
_DATA: Final = "+@read +@write -@dangerous -@admin -scan -randomkey"
_HEAR: Final = "+subscribe +unsubscribe +psubscribe +punsubscribe +publish"
_SCRIPTS_THAT_NEED_NO_MEMORY: Final = "%W~"
"""They begin with the removal of the key without a name."""

_WAITING: Final = (keys.WAITING, keys.waiting_group("*"), keys.WAITING_GROUPS, keys.WAITING_OF, keys.WAITING_CLIENTS)
_SHARED: Final = (
    *(keys.PENDING, *_WAITING, keys.TURNS, keys.EXPIRIES, keys.DELAYED, keys.CAPACITY, keys.STALE, keys.FORGED),
    *(keys.SESSIONS, keys.WORKERS, keys.call("*"), keys.message("*"), keys.SUBMIT_QUEUE, keys.worker_queue("*")),
    *(keys.worker("*"), keys.worker_calls("*"), keys.worker_memory("*"), keys.worker_avoided("*")),
    *(keys.worker_sessions("*"), keys.worker_idle_sessions("*"), keys.worker_session_calls("*")),
    *(keys.session("*"), keys.session_calls("*"), keys.session_queue("*"), keys.catalogue("*")),
)
"""What routers and workers both read and write."""
_CELERY: Final = ("_kombu.binding*", "*.celery.pidbox", "celeryev*", "unacked*")
_CELERY_CHANNELS: Final = tuple(f"/{db}.{name}" for db in range(16) for name in ("celery.pidbox", "celeryev/*"))
"""Spelt out: whoever hears a pattern of channels must have a right to that very pattern."""
_CHANNELS: Final = (keys.replies("*"), keys.worker_control("*"), keys.reader_news("*", "*"), keys.result("*"))


def rights_of_client(user: str) -> str:
    """Return the rights of a client: its own calls and sessions, and to add to what all share without reading it."""
    own = f"{user}.*"
    return _joined(
        (_TALK, _SCRIPTS, "+subscribe +unsubscribe +publish"),
        ("+get +set +setrange +getrange +del +hget +hmget +hgetall +hset +hdel +xrange +xtrim +llen +blpop",),
        _rw(keys.call(own), keys.message(own), keys.values(own), keys.explanation(own)),
        _reads(f"{keys.PREFIX}value:{own}", keys.output(own), keys.result(own)),
        _reads(keys.session(own), keys.session_calls(own)),
        _writes(keys.payload(own), keys.wish(own)),
        (_SCRIPTS_THAT_NEED_NO_MEMORY,),
        _hears(keys.replies(own), keys.reader_news("*", own)),
        (f"(+lpush +rpush {_words(_writes(keys.SUBMIT_QUEUE))})",),
        (f"(+zadd {_words(_writes(keys.PENDING, keys.EXPIRIES))})",),
        (f"(+hget {_words(_reads(keys.WAITING_GROUPS))})",),
    )


def rights_of(role: str) -> str:
    """Return the rights of one of :data:`ROLES`."""
    match role:
        case "router":
            return _joined(
                (_TALK, _SCRIPTS, _DATA, "+info +publish"),
                _rw(*_SHARED, keys.ROUTERS, keys.router_taken("*"), keys.wish("*")),
                _rw(keys.traffic("*"), keys.traffic_day("*")),
                _rw(keys.DEAD_LETTERS, keys.explanation("*")),
                _writes(keys.result("*"), keys.payload("*"), keys.output("*"), keys.values("*")),
                (_SCRIPTS_THAT_NEED_NO_MEMORY,),
                _hears(*_CHANNELS),
            )
        case "worker":
            return _joined(
                (_TALK, _SCRIPTS, _DATA, _HEAR, "+info +pubsub|numsub +watch +unwatch"),
                _rw(*_SHARED, keys.payload("*"), keys.output("*"), keys.values("*"), *_CELERY),
                _reads(keys.traffic("*")),
                _writes(keys.result("*"), keys.DEAD_LETTERS, f"{keys.PREFIX}value:*"),
                (_SCRIPTS_THAT_NEED_NO_MEMORY,),
                # The pattern that a worker process hears has its own id in it.
                _hears("*"),
            )
        case "flower":
            return _joined(
                (_TALK, _SCRIPTS, _DATA, _HEAR, "+info +watch +unwatch"),
                _rw(*_CELERY),
                _hears(*_CELERY_CHANNELS),
                (f"(+llen {_words(_reads(keys.SUBMIT_QUEUE, keys.worker_queue('*')))})",),
            )
        case "observer":
            return _joined(
                (_TALK, "+@read -@dangerous -@admin -randomkey +info"),
                _reads(keys.PENDING, *_WAITING, keys.EXPIRIES, keys.DELAYED, keys.CAPACITY, keys.STALE, keys.FORGED),
                _reads(keys.call("*"), keys.SESSIONS, keys.session("*"), keys.session_calls("*")),
                _reads(keys.WORKERS, keys.ROUTERS),
                _reads(keys.worker("*"), keys.worker_calls("*"), keys.worker_memory("*"), keys.worker_avoided("*")),
                _reads(keys.worker_sessions("*"), keys.worker_idle_sessions("*"), keys.worker_session_calls("*")),
                _reads(keys.catalogue("*"), keys.traffic("*"), keys.traffic_day("*")),
                (f"(+llen {_words(_reads(keys.SUBMIT_QUEUE, keys.worker_queue('*'), keys.DEAD_LETTERS))})",),
            )
        case "admin":
            return "+@all ~* &*"
    raise ValueError(f"no role {role!r}")


def acl_file(clients: Iterable[str], passwords: Mapping[str, str]) -> str:
    """Return the content of Redis' ``aclfile``. It has digests of the passwords, not the passwords.

    Args:
        clients: names of the users that submit calls.
        passwords: of each of them and of each role.
    """
    rights = {role: rights_of(role) for role in ROLES} | {client: rights_of_client(client) for client in clients}
    # Nobody can be this user, but Redis itself reads its append-only file as it: without all rights it would leave out
    # what scripts have written. With `nopass` it would serve no other machine while in protected mode.
    lines = ["user default off resetpass ~* &* +@all"]
    for user, allowed in rights.items():
        digest = hashlib.sha256(passwords[user].encode()).hexdigest()
        lines.append(f"user {user} on #{digest} resetchannels -@all {allowed}")
    return "".join(f"{line}\n" for line in lines)


def _joined(*parts: Iterable[str]) -> str:
    return " ".join(word for part in parts for word in part)


def _words(words: Iterable[str]) -> str:
    return " ".join(words)


def _rw(*patterns: str) -> list[str]:
    return [f"~{pattern}" for pattern in patterns]


def _reads(*patterns: str) -> list[str]:
    return [f"%R~{pattern}" for pattern in patterns]


def _writes(*patterns: str) -> list[str]:
    return [f"%W~{pattern}" for pattern in patterns]


def _hears(*patterns: str) -> list[str]:
    return [f"&{pattern}" for pattern in patterns]
