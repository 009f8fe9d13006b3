"""What sandboxes must not reach. Data in, data out, but for looking up names."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from workers.sandbox.network.links import Network

_NOT_PUBLIC_4 = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
# Of version 6 only 2000::/3 is public; what follows are ranges outside of it, and those in it or beside it that lead
# to an address of version 4 that is written into the address.
_NOT_PUBLIC_6 = ("::/3", "2001::/32", "2002::/16", "4000::/2", "8000::/1")
NOT_PUBLIC: frozenset[Network] = frozenset(map(ip_network, (*_NOT_PUBLIC_4, *_NOT_PUBLIC_6)))
"""Addresses that belong to no host of the public internet: private, link-local, loopback, multicast and reserved."""

_DEFAULT_BITS = {4: 1, 6: 3}
"""Routes of so few bits are a default route, which some VPNs cut in two."""


def blocked(routes: Iterable[Network], addresses: Iterable[str]) -> frozenset[Network]:
    """Return the networks that sandboxes must not reach, the fewest that say it.

    Args:
        routes: destinations of the host's routes: all but a default one lead to networks of its own.
        addresses: more hosts, such as that of Redis.
    """
    own = {network for network in routes if network.prefixlen > _DEFAULT_BITS[network.version]}
    own |= {ip_network(address) for address in addresses}
    everything = NOT_PUBLIC | own
    return frozenset(network for network in everything if not _within_another(network, everything))


def addresses_of(url: str) -> frozenset[str]:
    """Return the addresses of the host in a URL, none for one without a host; ``OSError`` when it has none."""
    host = urlsplit(url).hostname
    if not host or url.startswith("unix:"):
        return frozenset()
    found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    return frozenset(str(getattr(ip_address(one), "ipv4_mapped", None) or one) for one in found)


def overlap(own: Iterable[Network], taken: Iterable[Network]) -> bool:
    """Return whether a route other than a default one leads into a range."""
    routes = [network for network in taken if network.prefixlen > _DEFAULT_BITS[network.version]]
    return any(one.version == other.version and one.overlaps(other) for one in own for other in routes)


def _within_another(network: Network, others: Iterable[Network]) -> bool:
    return any(
        network != other and network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]
        for other in others
    )
