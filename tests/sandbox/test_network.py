"""Sandboxes with a network: what they reach, and what not. The test makes an internet and a host of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.conftest import ROOT
from tests.local_stack import eventually
from tests.sandbox.versions import other_versions
from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.network import links
from workers.sandbox.network.check import check_network
from workers.sandbox.network.gateway import Gateway, NetworkUnavailableError
from workers.sandbox.network.links import Network, Veth
from workers.sandbox.network.netlink import Netlink, attributes, inside, new_namespace
from workers.sandbox.runsc import Runsc, find_runsc
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.shape import sandbox_shape

SECONDS = 60.0
PORT = 80
INTERNET = ("8.8.4.4", "2a00:9999::1")
REDIS = ("8.8.4.5", "2a00:9999::2")
"""On the internet, as a managed one is."""
NEIGHBOUR = ("203.0.113.1", "2a00:1234::1")
OWN = ("203.0.113.2", "2a00:1234::2")
LATER = ("198.51.100.1", "2a00:5678::1")
"""A network that the host joins while the worker runs."""

RunCall = Callable[..., Any]

pytestmark = pytest.mark.sandbox
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # sandboxes have no tests


@dataclass
class World:
    """Two namespaces: a machine for a worker, and the internet, which answers with the address that it sees."""

    machine: int
    internet: int
    machine_link: Netlink
    internet_link: Netlink


def answer_with_address(address: str) -> None:
    """Begin to answer connections to an address of the calling thread's namespace with that of the other side."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, PORT), family=family)

    def serve() -> None:
        while True:
            connection, client = server.accept()
            with connection:
                connection.sendall(client[0].encode())

    threading.Thread(target=serve, daemon=True).start()


def answer_names(address: str) -> None:
    """Begin to answer every name lookup with the first address of ``INTERNET``."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))

    def serve() -> None:
        while True:
            question, client = server.recvfrom(512)
            kind = question[question.index(b"\0", 12) + 1 :][:2]
            found = kind == b"\0\1"
            record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + ip_address(INTERNET[0]).packed if found else b""
            end = question.index(b"\0", 12) + 5
            counts = b"\0\1" + bytes([0, int(found)]) + bytes(4)
            server.sendto(question[:2] + b"\x81\x80" + counts + question[12:end] + record, client)

    threading.Thread(target=serve, daemon=True).start()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    machine, internet = new_namespace(), new_namespace()
    world = World(machine, internet, inside(machine, Netlink), inside(internet, Netlink))
    addresses = [new_address(100, f"{NEIGHBOUR[0]}/24"), new_address(100, f"{NEIGHBOUR[1]}/64")]
    everywhere = [new_address(1, f"{address}/{32 if '.' in address else 128}") for address in INTERNET + REDIS + LATER]
    veth = Veth("eth0", 100, "eth0", 100, machine, 1400)
    world.internet_link.request(links.set_up(1), links.new_veth(veth), *addresses, links.set_up(100), *everywhere)
    world.machine_link.request(
        links.set_up(1), new_address(100, f"{OWN[0]}/24"), new_address(100, f"{OWN[1]}/64"), links.set_up(100)
    )
    world.machine_link.request(*(links.new_route(100, ip_address(gateway)) for gateway in NEIGHBOUR))
    inside(machine, lambda: Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1"))
    for address in INTERNET + REDIS + NEIGHBOUR + LATER:
        inside(internet, partial(answer_with_address, address))
    for address in OWN:
        inside(machine, partial(answer_with_address, address))
    yield world
    os.close(machine)
    os.close(internet)


def new_address(index: int, address: str) -> bytes:
    return links.new_address(index, ip_interface(address))


def new_veth_to_nowhere(world: World, networks: list[Network]) -> int:
    """Give the machine one more network; closing what is returned takes it away."""
    nowhere = new_namespace()
    veth = Veth("other", 101, "other", 101, nowhere, 1400)
    addresses = [links.new_address(101, ip_interface((network[9], network.prefixlen))) for network in networks]
    world.machine_link.request(links.new_veth(veth), *addresses, links.set_up(101))
    inside(nowhere, lambda: Netlink().request(links.set_up(101)))
    return nowhere


@pytest.fixture(scope="module")
def gateway(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway of that machine, whose name server is its neighbour."""
    with pytest.MonkeyPatch.context() as patch:
        resolver = tmp_path_factory.mktemp("etc") / "resolv.conf"
        resolver.write_text(f"# one\nnameserver {OWN[0]}\n")
        inside(world.machine, lambda: answer_names(OWN[0]))
        patch.setattr("workers.sandbox.network.dns._RESOLVER_FILE", resolver)
        gateway = inside(world.machine, lambda: Gateway([f"redis://{REDIS[0]}:6379/0", f"redis://[{REDIS[1]}]:6379/0"]))
        with gateway:
            for each in gateway._range.uplink.upper:
                inside(world.machine, partial(answer_with_address, str(each.ip)))
            yield gateway


@pytest.fixture(scope="module")
def networked(run_dir: Path, filesystem: Filesystem, gateway: Gateway) -> Iterator[SandboxHost]:
    if Runsc(find_runsc()).version.startswith("0.0~"):
        pytest.skip("this runsc can give sandboxes no network; that a worker says so has a test of its own")
    shape = sandbox_shape(filesystem, network="sandbox")
    with SandboxHost(run_dir / "networked", find_runsc(), filesystem, shape, gateway=gateway) as host:
        yield host


@pytest.fixture(scope="module")
def image(networked: SandboxHost, tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = tmp_path_factory.mktemp("networked") / "image"
    sandbox = networked.take()
    sandbox.start(timeout=SECONDS, imports=["socket"])
    sandbox.wait_imported(timeout=SECONDS)
    sandbox.checkpoint(image, timeout=SECONDS)
    networked.discard(sandbox)
    return image


@contextlib.contextmanager
def started(host: SandboxHost, image: Path | None) -> Iterator[tuple[Sandbox, ExecutorConnection]]:
    sandbox = host.take()
    try:
        if image is None:
            sandbox.start(timeout=SECONDS)
        else:
            sandbox.restore(image, timeout=SECONDS)
        yield sandbox, sandbox.wait_ready(timeout=SECONDS)
    finally:
        host.discard(sandbox)


@pytest.fixture(scope="module", params=["restored", "cold"])
def connection(request: pytest.FixtureRequest, networked: SandboxHost, image: Path) -> Iterator[ExecutorConnection]:
    with started(networked, image if request.param == "restored" else None) as (_, connection):
        yield connection


def ask(addresses: list[str], port: int = PORT) -> dict[str, str]:
    """Return what each address answers, or the name of the error."""
    import errno
    import socket
    from concurrent.futures import ThreadPoolExecutor

    def answer(address: str) -> str:
        try:
            with socket.create_connection((address, port), timeout=3) as connection:
                return connection.recv(64).decode()
        except TimeoutError:
            return "ETIMEDOUT"
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    with ThreadPoolExecutor(len(addresses)) as pool:
        return dict(zip(addresses, pool.map(answer, addresses), strict=True))


def from_machine(world: World, addresses: Sequence[str], port: int = PORT) -> dict[str, str]:
    return inside(world.machine, lambda: ask(list(addresses), port))


def look_up(name: str) -> list[str]:
    import socket

    return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})


def own_addresses() -> list[str]:
    import socket

    found = []
    for family, address in ((socket.AF_INET, "8.8.4.4"), (socket.AF_INET6, "2a00:9999::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found.append(probe.getsockname()[0])
    return found


def refused(answers: dict[str, str]) -> bool:
    return set(answers.values()) <= {
        errno.errorcode[number]
        for number in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED, errno.EADDRNOTAVAIL)
    } | {"EINVAL"}


def test_it_reaches_the_internet_under_the_machines_address(connection: ExecutorConnection, run_call: RunCall) -> None:
    assert run_call(connection, ask, list(INTERNET)) == dict(zip(INTERNET, OWN, strict=True))


def test_it_looks_names_up_where_the_machine_does(connection: ExecutorConnection, run_call: RunCall) -> None:
    assert run_call(connection, look_up, "files.example") == [INTERNET[0]]
    assert "127.0.0.1" in run_call(connection, look_up, "localhost")


def test_it_does_not_reach_redis(connection: ExecutorConnection, run_call: RunCall, world: World) -> None:
    assert set(from_machine(world, REDIS).values()) == set(OWN)
    assert refused(run_call(connection, ask, list(REDIS)))


def test_it_does_not_reach_the_machine_or_its_network(
    connection: ExecutorConnection, run_call: RunCall, world: World, gateway: Gateway
) -> None:
    assert from_machine(world, NEIGHBOUR) == dict(zip(NEIGHBOUR, OWN, strict=True))
    uplink = [str(each.ip) for each in gateway._range.uplink.upper]
    assert refused(run_call(connection, ask, [*NEIGHBOUR, *OWN, *uplink]))


def test_it_does_not_reach_a_network_that_the_machine_joins_later(
    connection: ExecutorConnection, run_call: RunCall, world: World, gateway: Gateway
) -> None:
    assert not refused(run_call(connection, ask, list(LATER)))
    networks = [ip_interface(f"{LATER[0]}/24").network, ip_interface(f"{LATER[1]}/64").network]
    joined = new_veth_to_nowhere(world, networks)
    eventually(lambda: gateway._blocked.issuperset(networks), "the gateway blocks the new network")
    try:
        assert refused(run_call(connection, ask, list(LATER)))
    finally:
        os.close(joined)
    eventually(lambda: gateway._blocked.isdisjoint(networks), "the gateway lets it through again")


def test_it_does_not_reach_private_or_link_local_addresses(
    connection: ExecutorConnection, run_call: RunCall, gateway: Gateway
) -> None:
    def listening_in_gateway() -> list[str]:
        return [line.split()[0] for line in Path("/proc/net/if_inet6").read_text().splitlines() if line[:4] == "fe80"]

    of_gateway = [str(ip_address(bytes.fromhex(one))) for one in inside(gateway._namespace, listening_in_gateway)]
    metadata = ["169.254.169.254", "10.0.0.1", "192.168.0.1", "fd00::1", "64:ff9b::a00:1"]
    assert refused(run_call(connection, ask, metadata + [f"{one}%eth0" for one in of_gateway[:2]]))


def test_it_does_not_reach_other_sandboxes(
    connection: ExecutorConnection, run_call: RunCall, networked: SandboxHost, image: Path
) -> None:
    def serve(addresses: list[str]) -> list[int]:
        import socket
        import threading

        def answer(server: Any) -> None:
            while True:
                other, _ = server.accept()
                other.sendall(b"hello")
                other.close()

        families = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in addresses]
        for address, family in zip(addresses, families, strict=True):
            server = socket.create_server((address, 8080), family=family)
            threading.Thread(target=answer, args=(server,), daemon=True).start()
        return [1]

    with started(networked, image) as (_, other):
        addresses = run_call(other, own_addresses)
        run_call(other, serve, addresses)
        assert set(run_call(other, ask, addresses, 8080).values()) == {"hello"}
        assert refused(run_call(connection, ask, addresses, 8080))


def test_nobody_reaches_it(connection: ExecutorConnection, run_call: RunCall, world: World) -> None:
    addresses = run_call(connection, own_addresses)
    assert refused(from_machine(world, addresses, 8080))


def test_every_clone_has_an_address_of_its_own(networked: SandboxHost, image: Path, run_call: RunCall) -> None:
    seen = []
    for _ in range(4):
        with started(networked, image) as (sandbox, connection):
            seen.append(tuple(run_call(connection, own_addresses)))
            assert sandbox.phases["restore_seconds"] > 0
    assert len(set(seen)) == 4


def test_a_runsc_that_can_give_no_network_is_found_out(run_dir: Path, filesystem: Filesystem, gateway: Gateway) -> None:
    shape = sandbox_shape(filesystem, network="sandbox")
    for number, runsc in enumerate([find_runsc(), *other_versions()]):
        with SandboxHost(run_dir / f"tried{number}", runsc, filesystem, shape, gateway=gateway) as host:
            able = not host.runsc_version.startswith("0.0~")  # Debian's
            with contextlib.nullcontext() if able else pytest.raises(NetworkUnavailableError, match="READIE_RUNSC"):
                check_network(host)


def test_nothing_of_it_outlives_its_worker(world: World, gateway: Gateway) -> None:
    def interfaces() -> set[str]:
        return {name for _, name in inside(world.machine, socket.if_nameindex) if name.startswith("readie")}

    def tables() -> set[str]:
        netlink = inside(world.machine, partial(Netlink, 12))
        listed = netlink.dump(10 << 8 | 1, struct.pack(">BBH", 0, 0, 0))
        netlink.close()
        return {attributes(body, 4)[1].decode().rstrip("\0") for body in listed}

    program = (
        "import sys, time; from workers.sandbox.network.gateway import Gateway; gateway = Gateway([]); "
        "slot = gateway.new_slot(); print('up', flush=True); time.sleep(1000)"
    )
    before = interfaces(), tables()
    worker = inside(
        world.machine,
        lambda: subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT, text=True),
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "up\n"
    assert len(interfaces()) == len(tables()) == len(before[0]) + 1
    worker.kill()
    worker.communicate()
    eventually(lambda: (interfaces(), tables()) == before, "nothing is left")


def test_nothing_of_it_outlives_its_sandbox(world: World, gateway: Gateway) -> None:
    def interfaces() -> set[str]:
        return {name for _, name in inside(gateway._namespace, socket.if_nameindex)}

    slot = gateway.new_slot()
    name = next(name for name in interfaces() if name.endswith(f"sandbox{gateway._made}"))
    slot.close()
    eventually(lambda: name not in interfaces(), "its interface is gone")
