"""Which address is whose. Data in, data out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_interface
from typing import Final

from workers.sandbox.network.links import Address, Interface

SLOTS: Final = 16_000
"""Sandboxes get addresses in turn, so that one is not another's before so many have been made."""
_RANGES: Final = 64
_FIRST_SLOT: Final = 16


@dataclass(frozen=True)
class Pair:
    """The two ends of a link, by IP version: nearer to the host, and nearer to the sandbox."""

    upper: tuple[Interface, ...]
    lower: tuple[Interface, ...]


@dataclass(frozen=True)
class Range:
    """The addresses of one gateway and its sandboxes: small networks of two hosts each."""

    number: int
    networks: tuple[IPv4Network | IPv6Network, ...]

    @property
    def nameserver(self) -> Interface:
        """Where the gateway answers name lookups."""
        return ip_interface(self.networks[0].network_address + 1)

    @property
    def uplink(self) -> Pair:
        """The link between host and gateway."""
        return self._pair(4)

    def slot(self, number: int) -> Pair:
        """Return the link between gateway and sandbox for each ``number``; they repeat after ``SLOTS``."""
        return self._pair(_FIRST_SLOT + 4 * (number % SLOTS))

    def only(self, version: int) -> Range:
        """Return the same without the other version."""
        return Range(self.number, tuple(network for network in self.networks if network.version == version))

    def _pair(self, offset: int) -> Pair:
        first = [(network.network_address + offset, network.max_prefixlen - 2) for network in self.networks]
        return Pair(
            upper=tuple(ip_interface((address + 1, length)) for address, length in first),
            lower=tuple(ip_interface((address + 2, length)) for address, length in first),
        )


def ranges() -> Iterator[Range]:
    """Yield the ranges to choose from: of what carriers use inside their networks, and of what is nobody's."""
    for number in range(_RANGES):
        yield Range(number, (IPv4Network(f"100.{127 - number}.0.0/16"), IPv6Network(f"fd72:6561:6469:{number:x}::/64")))


def addresses(interfaces: tuple[Interface, ...]) -> tuple[Address, ...]:
    """Return the bare addresses."""
    return tuple(interface.ip for interface in interfaces)
