"""Interfaces, addresses, routes and rules of a namespace."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network, ip_network
from typing import Final

from workers.sandbox.network.netlink import CREATE, Netlink, attribute, attributes, message, nested, text

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network

ROUTE_AND_ADDRESS_GROUPS: Final = 0x10 | 0x40 | 0x100 | 0x400
"""Groups of a ``Netlink`` that hears of every changed route and address."""
MAIN_TABLE: Final = 254

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE, _DELETE_ROUTE, _GET_ROUTE, _NEW_RULE = 16, 20, 24, 25, 26, 32
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_UP = 1
_NO_DUPLICATE_CHECK = 0x02
_STATIC = 4
_UNICAST, _UNREACHABLE = 1, 7
_TO_TABLE = 1


@dataclass(frozen=True)
class Veth:
    """A pair of interfaces; the indices are the caller's choice, above those that the kernel gives by itself."""

    name: str
    index: int
    peer_name: str
    peer_index: int
    peer_namespace: int
    mtu: int


def new_veth(veth: Veth) -> bytes:
    """Return the request that makes a pair, one end of it in another namespace."""
    peer = _LINK.pack(0, 0, veth.peer_index, 0, 0) + b"".join(
        (
            text(3, veth.peer_name),
            attribute(4, _number(veth.mtu)),
            attribute(28, _number(veth.peer_namespace)),
        )
    )
    data = nested(2, attribute(1, peer))
    own = text(3, veth.name) + attribute(4, _number(veth.mtu)) + nested(18, text(1, "veth"), data)
    return message(_NEW_LINK, _LINK.pack(0, 0, veth.index, 0, 0) + own, CREATE)


def set_up(index: int) -> bytes:
    """Return the request that takes an interface into use."""
    return message(_NEW_LINK, _LINK.pack(0, 0, index, _UP, _UP))


def let_forward(index: int) -> bytes:
    """Return the request that lets an interface's packets go on to another one; of IP version 4 only."""
    settings = nested(1, attribute(1, _number(1)))
    return message(_NEW_LINK, _LINK.pack(0, 0, index, 0, 0) + nested(26, nested(socket.AF_INET, settings)))


def new_address(index: int, address: Interface) -> bytes:
    """Return the request that gives an interface an address."""
    length = address.network.prefixlen
    body = _ADDRESS.pack(_family(address.version), length, _NO_DUPLICATE_CHECK, 0, index)
    packed = address.ip.packed
    return message(_NEW_ADDRESS, body + attribute(2, packed) + attribute(1, packed), CREATE)


def new_route(index: int, gateway: Address, network: Network | None = None, table: int = MAIN_TABLE) -> bytes:
    """Return the request that sends what is for ``network``, or has no other route, through a gateway."""
    length = network.prefixlen if network else 0
    body = _ROUTE.pack(_family(gateway.version), length, 0, 0, table, _STATIC, 0, _UNICAST, 0)
    body += attribute(1, network.network_address.packed) if network else b""
    return message(_NEW_ROUTE, body + attribute(5, gateway.packed) + attribute(4, _number(index)), CREATE)


def unreachable(network: Network, table: int, *, remove: bool = False) -> bytes:
    """Return the request that makes a network unreachable in a table, or no more."""
    body = _ROUTE.pack(_family(network.version), network.prefixlen, 0, 0, table, _STATIC, 0, _UNREACHABLE, 0)
    # Above the priority of a default route, so that both can be there.
    body += attribute(1, network.network_address.packed) + attribute(6, _number(1 << 20))
    return message(_DELETE_ROUTE, body) if remove else message(_NEW_ROUTE, body, CREATE)


def new_rule(version: int, priority: int, table: int, incoming: str = "") -> bytes:
    """Return the request for a rule: what comes from the interface ``incoming`` (any) is routed by ``table``."""
    body = _ROUTE.pack(_family(version), 0, 0, 0, table, 0, 0, _TO_TABLE, 0)
    body += attribute(6, _number(priority)) + (text(3, incoming) if incoming else b"")
    return message(_NEW_RULE, body, CREATE)


@dataclass(frozen=True)
class Route:
    """One route of a namespace."""

    destination: Network
    interface: int | None


def routes(netlink: Netlink, version: int) -> Iterable[Route]:
    """Return every route of every table, those to own addresses included."""
    family = _family(version)
    for body in netlink.dump(_GET_ROUTE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
        answered, length, *_ = _ROUTE.unpack_from(body)
        if answered == family:
            found = attributes(body, _ROUTE.size)
            packed = found.get(1, bytes(4 if version == 4 else 16))
            interface = struct.unpack("=I", found[4])[0] if 4 in found else None
            yield Route(ip_network((packed, length), strict=False), interface)


def _family(version: int) -> int:
    return socket.AF_INET if version == 4 else socket.AF_INET6


def _number(value: int) -> bytes:
    return struct.pack("=I", value)
