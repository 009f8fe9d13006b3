"""The two firewall tables that a gateway needs: what leaves takes the address of the interface it leaves by.

Both are owned by the socket that made them: the kernel removes them when it is closed, also by the worker's death.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from workers.sandbox.network.links import Interface
from workers.sandbox.network.netlink import CREATE, Netlink, attribute, message, nested, text

_NETFILTER: Final = 12
_SUBSYSTEM = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = (_SUBSYSTEM << 8 | number for number in (0, 3, 6))
_APPEND = 0x800
_OWNED = 0x2
_INET = 1
_LOCAL_IN, _POST_ROUTING = 1, 4
_SOURCE_NAT_PRIORITY, _EARLY_PRIORITY = 100, -10
_META_OIF, _META_IIFNAME, _META_NFPROTO, _META_L4PROTO = 5, 6, 15, 16
_ICMP_6 = bytes([58])
_NAME_BYTES = 16
_DROP = 0


class Table:
    """A table of one namespace that is there until ``close``."""

    def __init__(self, name: str) -> None:
        """Make it, empty, in the namespace of the calling thread; ``OSError`` where the kernel can't."""
        self._name = text(1, name)
        self._netlink = Netlink(_NETFILTER)
        try:
            self._commit(_request(_NEW_TABLE, self._name + attribute(2, struct.pack(">I", _OWNED))))
        except BaseException:
            self._netlink.close()
            raise

    def masquerade_leaving(self, interface: int) -> None:
        """Let what leaves by an interface take its address."""
        self._source_nat(_equals(_META_OIF, struct.pack("=I", interface)))

    def masquerade_from(self, *sources: Interface) -> None:
        """Let what comes from an address take that of the interface by which it leaves."""
        conditions = []
        for source in sources:
            offset, family = (12, socket.AF_INET) if source.version == 4 else (8, socket.AF_INET6)
            packed = source.ip.packed
            conditions.append(
                _equals(_META_NFPROTO, bytes([family]))
                + _expression("payload", _numbers({1: 1, 2: 1, 3: offset, 4: len(packed)}))
                + _compare(packed)
            )
        self._source_nat(*conditions)

    def refuse_entering(self, interface: str) -> None:
        """Drop what comes in by an interface and is for this namespace itself, but for finding neighbours."""
        drop = attribute(1, struct.pack(">I", _DROP))
        verdict = _expression("immediate", _numbers({1: 0}) + nested(2, nested(2, drop)))
        name = interface.encode().ljust(_NAME_BYTES, b"\0")
        self._commit(
            self._chain("input", "filter", _LOCAL_IN, _EARLY_PRIORITY),
            self._rule("input", _equals(_META_IIFNAME, name) + _differs(_META_L4PROTO, _ICMP_6) + verdict),
        )

    def close(self) -> None:
        """Remove it."""
        self._netlink.close()

    def _source_nat(self, *conditions: bytes) -> None:
        rules = (self._rule("leaving", condition + _expression("masq", b"")) for condition in conditions)
        self._commit(self._chain("leaving", "nat", _POST_ROUTING, _SOURCE_NAT_PRIORITY), *rules)

    def _chain(self, name: str, kind: str, hook: int, priority: int) -> bytes:
        hooked = nested(4, attribute(1, struct.pack(">I", hook)), attribute(2, struct.pack(">i", priority)))
        return _request(_NEW_CHAIN, self._name + text(3, name) + hooked + text(7, kind))

    def _rule(self, chain: str, expressions: bytes) -> bytes:
        return _request(_NEW_RULE, self._name + text(2, chain) + nested(4, expressions), _APPEND)

    def _commit(self, *requests: bytes) -> None:
        bounds = (_batch(_BATCH_BEGIN), _batch(_BATCH_END))
        self._netlink.request(bounds[0], *requests, bounds[1])


def _batch(kind: int) -> bytes:
    return message(kind, struct.pack(">BBH", 0, 0, _SUBSYSTEM), acknowledge=False)


def _request(kind: int, body: bytes, flags: int = 0) -> bytes:
    return message(kind, struct.pack(">BBH", _INET, 0, 0) + body, flags | (CREATE & 0x400))


def _equals(key: int, value: bytes) -> bytes:
    return _expression("meta", _numbers({1: 1, 2: key})) + _compare(value)


def _differs(key: int, value: bytes) -> bytes:
    return _expression("meta", _numbers({1: 1, 2: key})) + _compare(value, equal=False)


def _compare(value: bytes, *, equal: bool = True) -> bytes:
    return _expression("cmp", _numbers({1: 1, 2: 0 if equal else 1}) + nested(3, attribute(1, value)))


def _expression(name: str, data: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, data))


def _numbers(values: dict[int, int]) -> bytes:
    return b"".join(attribute(kind, struct.pack(">I", value)) for kind, value in values.items())
