"""The namespace between sandboxes and host, and the namespaces of the sandboxes themselves."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from workers.sandbox.network import links, reach
from workers.sandbox.network.dns import NameRelay
from workers.sandbox.network.links import Address, Interface, Network, Veth
from workers.sandbox.network.netfilter import Table
from workers.sandbox.network.netlink import Netlink, inside, new_namespace
from workers.sandbox.network.plan import Range, addresses, ranges

logger = logging.getLogger(__name__)

_UPLINK: Final = "uplink"
_LINK_INDEX: Final = 4096
"""Above what the kernel gives by itself to the few interfaces of a new namespace."""
_HOST_INDEX: Final = 1 << 28
_FILTER_TABLE: Final = 100
_LOOK_AGAIN_SECONDS: Final = 30.0
"""How old what is known of Redis's addresses may be; of the host's routes the kernel tells by itself."""
_LOOPBACK: Final = 1


class NetworkUnavailableError(Exception):
    """Sandboxes can't have a network here; the text says why and what to do."""


@dataclass(frozen=True)
class Slot:
    """A network namespace for one sandbox, there until ``close`` and as long as something runs in it."""

    namespace: int
    addresses: tuple[Address, ...]

    @property
    def path(self) -> str:
        """Where runsc, which this process starts, finds it."""
        return f"/proc/{os.getpid()}/fd/{self.namespace}"

    def close(self) -> None:
        """Let it go; to be called once."""
        os.close(self.namespace)


class Gateway:
    """Joins sandboxes to the public internet. Safe to use from several threads.

    ``_netlink``, ``_made`` and ``_blocked`` are guarded by ``_lock``.

    Args:
        hidden_urls: of services that sandboxes must not reach although they may be on the public internet.

    Raises:
        NetworkUnavailableError: this machine or this process can't.
    """

    def __init__(self, hidden_urls: Iterable[str]) -> None:
        self._hidden_urls = tuple(hidden_urls)
        self._hidden: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()
        self._stop, self._stopped = socket.socketpair()
        self._made = 0
        self._blocked: frozenset[Network] = frozenset()
        self._host = Netlink()
        self._notices = Netlink(groups=links.ROUTE_AND_ADDRESS_GROUPS)
        try:
            self._namespace = new_namespace()
            self._netlink = inside(self._namespace, Netlink)
            self._range, self._mtu = self._join_host()
            self._tables = self._make_tables()
            self._set_rules()
            self._block()
            self._relay = NameRelay(inside(self._namespace, self._listen))
        except OSError as error:
            raise NetworkUnavailableError(
                f"sandboxes can't have a network: {error}. It needs root, in a container with the capability "
                "NET_ADMIN, and a kernel with nf_tables; SANDBOX_NETWORK=none does without"
            ) from error
        self._watcher = threading.Thread(target=self._watch, name="sandbox-network", daemon=True)
        self._watcher.start()
        self.versions = tuple(network.version for network in self._range.networks)
        """IP versions by which sandboxes reach the internet."""

    @property
    def nameserver(self) -> Address:
        """What answers name lookups of sandboxes."""
        return self._range.nameserver.ip

    def new_slot(self) -> Slot:
        """Return a new namespace that nobody else has had; ``OSError`` when the kernel refuses it."""
        with self._lock:
            number = self._made = self._made + 1
        pair = self._range.slot(number)
        namespace = new_namespace()
        try:
            index = 2 * _LINK_INDEX + number
            veth = Veth(f"sandbox{number}", index, "eth0", _LINK_INDEX, namespace, self._mtu)
            requests = [links.new_veth(veth), *(links.new_address(index, each) for each in pair.upper)]
            with self._lock:
                self._netlink.request(*requests, links.set_up(index), links.let_forward(index))
            inside(namespace, lambda: _fit_out(pair.lower, addresses(pair.upper)))
        except BaseException:
            os.close(namespace)
            raise
        return Slot(namespace, addresses(pair.lower))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it; the sandboxes have ended."""
        self._stop.close()
        self._watcher.join()
        self._relay.close()
        for table in self._tables:
            table.close()
        for netlink in (self._netlink, self._host, self._notices):
            netlink.close()
        self._stopped.close()
        os.close(self._namespace)

    def _join_host(self) -> tuple[Range, int]:
        """Make the link to the host; return the addresses that this gateway has, and what fits into a packet."""
        found = [route for version in (4, 6) for route in links.routes(self._host, version)]
        taken = [route.destination for route in found]
        mtu = min((_mtu(route.interface) for route in found if not route.destination.prefixlen), default=1500)
        without_6 = _why_not_version_6(self._namespace)
        if without_6:
            logger.info("sandboxes reach the internet by IP version 4 only: %s", without_6)
        for choice in ranges():
            wanted = choice.only(4) if without_6 else choice
            if reach.overlap(wanted.networks, taken):
                continue
            index = _HOST_INDEX + wanted.number
            veth = Veth(_host_name(wanted), index, _UPLINK, _LINK_INDEX, self._namespace, mtu)
            try:
                self._host.request(links.new_veth(veth))
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.EBUSY):  # another worker was faster
                    continue
                raise
            pair = wanted.uplink
            new_addresses = [links.new_address(index, each) for each in pair.upper]
            self._host.request(*new_addresses, links.set_up(index), links.let_forward(index))
            self._netlink.request(
                links.set_up(_LOOPBACK),
                links.new_address(_LOOPBACK, wanted.nameserver),
                *(links.new_address(_LINK_INDEX, each) for each in pair.lower),
                links.set_up(_LINK_INDEX),
                links.let_forward(_LINK_INDEX),
            )
            return wanted, mtu
        raise OSError("the host has routes to every range of addresses that sandboxes could have")

    def _make_tables(self) -> tuple[Table, ...]:
        name = _host_name(self._range)
        inner = inside(self._namespace, lambda: Table(name))
        inner.masquerade_leaving(_LINK_INDEX)
        outer = Table(name)
        outer.masquerade_from(*self._range.uplink.lower)
        # The gateway blocks the host's addresses one by one; this is for one that has just come.
        outer.refuse_entering(name)
        return inner, outer

    def _set_rules(self) -> None:
        """Route answers and the gateway's own packets by the main table, what sandboxes send by the filter's."""
        for uplink in addresses(self._range.uplink.upper):
            self._netlink.request(
                links.new_route(_LINK_INDEX, uplink),
                links.new_route(_LINK_INDEX, uplink, table=_FILTER_TABLE),
                links.new_rule(uplink.version, 10, links.MAIN_TABLE, "lo"),
                links.new_rule(uplink.version, 11, links.MAIN_TABLE, _UPLINK),
                links.new_rule(uplink.version, 12, _FILTER_TABLE),
            )

    def _block(self) -> None:
        """Bring what is unreachable up to date."""
        found = [route for version in (4, 6) for route in links.routes(self._host, version)]
        for url in self._hidden_urls:
            try:
                self._hidden[url] = reach.addresses_of(url)
            except OSError:
                if url not in self._hidden:
                    raise
        hidden = frozenset[str]().union(*self._hidden.values())
        wanted = reach.blocked((route.destination for route in found), hidden)
        wanted = frozenset(
            network for network in wanted if any(network.version == own.version for own in self._range.networks)
        )
        for route in found:
            if not route.destination.prefixlen and route.interface is not None and route.destination.version == 4:
                self._host.request(links.let_forward(route.interface))
        with self._lock:
            for network in wanted - self._blocked:
                self._netlink.request(links.unreachable(network, _FILTER_TABLE))
            for network in self._blocked - wanted:
                self._netlink.request(links.unreachable(network, _FILTER_TABLE, remove=True))
            self._blocked = wanted

    def _watch(self) -> None:
        while not self._notices.wait_for_notice(self._stopped, _LOOK_AGAIN_SECONDS):
            try:
                self._block()
            except OSError as error:
                logger.error("what sandboxes must not reach could not be brought up to date: %s", error)

    def _listen(self) -> tuple[socket.socket, socket.socket]:
        return NameRelay.listen(str(self.nameserver))


def _host_name(chosen: Range) -> str:
    return f"readie{chosen.number}"


def _fit_out(own: tuple[Interface, ...], gateways: tuple[Address, ...]) -> None:
    """Give the namespace of the calling thread an interface with addresses and default routes."""
    netlink = Netlink()
    try:
        netlink.request(
            links.set_up(_LOOPBACK),
            *(links.new_address(_LINK_INDEX, each) for each in own),
            links.set_up(_LINK_INDEX),
        )
        netlink.request(*(links.new_route(_LINK_INDEX, each) for each in gateways))
    finally:
        netlink.close()


def _why_not_version_6(namespace: int) -> str:
    """Make a namespace forward IP version 6; say why sandboxes can't have it, if they can't."""
    settings = Path("/proc/sys/net/ipv6/conf")
    try:
        if (settings / "all/forwarding").read_text().strip() != "1":
            # Turning it on would have the host ignore the router from which it may have its own address.
            return "the host does not forward version 6 (net.ipv6.conf.all.forwarding is 0)"

        def turn_on() -> None:
            for name, value in (("all/disable_ipv6", "0"), ("default/disable_ipv6", "0"), ("all/forwarding", "1")):
                (settings / name).write_text(value)

        inside(namespace, turn_on)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def _mtu(interface: int | None) -> int:
    try:
        return int(Path(f"/sys/class/net/{socket.if_indextoname(interface or 0)}/mtu").read_text())
    except (OSError, ValueError):
        return 1500
