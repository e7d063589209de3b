"""Ports: free ones away from the kernel's own, and listening on the first free one of several."""

import socket
from pathlib import Path

import pytest

from ft_supervisor.process import ports
from ft_supervisor.process.ports import PortsTaken, bind_first, free_port


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_free_port_can_be_bound_and_is_none_of_the_kernels(host: str) -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    port = free_port(host)
    assert port in ports._range()
    assert not low <= port <= high or high - low > 60000
    bind_first("", [port]).close()


def test_a_free_port_is_none_that_is_taken_or_to_be_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind_first("127.0.0.1", [free_port()]) as listener:
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "_range", lambda: range(taken, taken + 1))
        with pytest.raises(PortsTaken, match=f"no port is free between {taken} and {taken}"):
            free_port()  # bound on one address, so not free on all
    assert free_port() == taken
    with pytest.raises(PortsTaken):
        free_port(avoid=[taken])


def test_another_nodes_address_is_an_error_of_its_own() -> None:
    for call in (lambda: free_port("192.0.2.1"), lambda: bind_first("192.0.2.1", [free_port()])):
        with pytest.raises(OSError) as caught:
            call()
        assert not isinstance(caught.value, PortsTaken)


def test_the_first_free_port_of_several_listens() -> None:
    wanted = [free_port()]
    wanted.append(free_port(avoid=wanted))
    with bind_first("", wanted) as first, bind_first("127.0.0.1", wanted) as second:
        assert [first.getsockname()[1], second.getsockname()[1]] == wanted
        assert not first.get_inheritable()
        for port in wanted:
            socket.create_connection(("127.0.0.1", port), 60).close()
        with pytest.raises(PortsTaken, match=f"{wanted[0]}, {wanted[1]}"):
            bind_first("127.0.0.1", wanted)


def test_a_port_whose_connections_are_not_quite_over_is_free() -> None:
    with bind_first("127.0.0.1", [free_port()]) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), 60)
        listener.accept()[0].close()  # the side that closes first keeps the port in TIME_WAIT
        client.recv(1)
        client.close()
    bind_first("127.0.0.1", [port]).close()


def test_no_port_at_all_is_said() -> None:
    with pytest.raises(PortsTaken, match="none is allowed"):
        bind_first("", [])
