"""The contract of every store; run on the one in memory and on torch's."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from ft_supervisor.store.base import Store, StoreLost

BINARY = bytes(range(256))


class Server(Protocol):
    """The fixture; see conftest."""

    def connect(self) -> Store:
        """Return a new connection."""

    def die(self) -> None:
        """End as if the server's process were killed."""


def test_a_queue_gives_what_was_pushed_in_order_and_byte_for_byte(server: Server, store: Store) -> None:
    other = server.connect()
    for data in (BINARY, b"second", b"x" * 65536):
        other.push("q", data)
    assert [store.pop("q", 30) for _ in range(3)] == [BINARY, b"second", b"x" * 65536]


def test_a_pop_that_finds_nothing_says_so_and_the_connection_goes_on(server: Server, store: Store) -> None:
    assert store.pop("q", 0) is None
    began = time.monotonic()
    assert store.pop("q", 0.05) is None
    assert time.monotonic() - began >= 0.05
    server.connect().push("q", b"later")
    assert store.pop("q", 30) == b"later"
    assert store.pop("q", 0) is None


def test_a_blocked_pop_wakes_with_what_comes(server: Server, store: Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(store.pop, "q", 60)
        server.connect().push("q", b"woken")
        assert popped.result(60) == b"woken"


def test_each_item_goes_to_one_consumer(server: Server) -> None:
    connections = [server.connect() for _ in range(4)]
    sender = server.connect()
    for i in range(40):
        sender.push("q", str(i).encode())
    assert sender.get("missing") is None  # the pushes before it on this connection have arrived

    def consume(store: Store) -> list[bytes]:
        taken = []
        while (item := store.pop("q", 0.2)) is not None:
            taken.append(item)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [item for items in pool.map(consume, connections) for item in items]
    assert sorted(map(int, taken)) == list(range(40))


def test_a_missing_key_is_none_at_once(store: Store) -> None:
    assert store.get("missing") is None
    store.set("key", BINARY)
    assert store.get("key") == BINARY


def test_an_empty_value_is_there(store: Store) -> None:
    store.set("key", b"")
    assert store.get("key") == b""


def test_asking_for_a_missing_key_does_not_make_it(server: Server, store: Store) -> None:
    assert store.get("k") is None
    assert server.connect().get("k") is None
    assert server.connect().compare_set("k", b"", b"first") == b"first"
    assert store.get("k") == b"first"


def test_compare_set_lets_the_first_one_win(server: Server, store: Store) -> None:
    other = server.connect()
    assert store.compare_set("k", b"", BINARY) == BINARY
    assert other.compare_set("k", b"", b"mine") == BINARY
    assert other.compare_set("k", BINARY, b"mine") == b"mine"
    assert store.get("k") == b"mine"


@pytest.mark.parametrize(("expected", "desired"), [(b"old", b"new"), (b"old", b"old")])
def test_compare_set_against_a_missing_key_changes_nothing(store: Store, expected: bytes, desired: bytes) -> None:
    assert store.compare_set("k", expected, desired) == b""
    assert store.get("k") is None


def test_counters_of_missing_and_odd_keys_are_zero(server: Server, store: Store) -> None:
    other = server.connect()
    other.set("a", b"3")
    other.set("odd", b"\xffno number")
    assert other.get("a") == b"3"  # what this connection said before has arrived
    assert store.counters(["a", "b", "odd"]) == [3, 0, 0]
    other.set("b", b"1")
    other.set("a", b"4")
    assert other.get("a") == b"4"
    assert store.counters(["b", "a", "odd"]) == [1, 4, 0]
    assert store.counters([]) == []
    assert other.get("odd") == b"\xffno number"


def test_a_thousand_counters(server: Server, store: Store) -> None:
    keys = [f"heartbeat/{i}" for i in range(1000)]
    assert store.counters(keys) == [0] * 1000
    other = server.connect()
    other.set(keys[-1], b"7")
    assert other.get(keys[-1]) == b"7"
    assert store.counters(keys) == [0] * 999 + [7]


def test_a_clone_is_another_connection_to_the_same_contents(store: Store) -> None:
    clone = store.clone()
    store.set("k", b"v")
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(clone.pop, "q", 60)
        assert store.get("k") == b"v"  # not held up by the blocked clone
        store.push("q", b"x")
        assert popped.result(60) == b"x"
    assert clone.get("k") == b"v"


def test_when_the_server_dies_every_call_says_lost(server: Server, store: Store) -> None:
    store.set("k", b"v")
    blocked = store.clone()
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(blocked.pop, "q", 60)
        server.die()
        with pytest.raises(StoreLost):
            popped.result(60)
    with pytest.raises(StoreLost):
        store.get("k")
    with pytest.raises(StoreLost):
        store.pop("q", 1)
    with pytest.raises(StoreLost):
        store.counters(["n"])
    with pytest.raises(StoreLost):
        store.compare_set("k", b"", b"x")
    with pytest.raises(StoreLost):
        store.clone()
