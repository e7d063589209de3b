"""The particulars of torch's store: hosting on a socket of ours, connecting, its environment, its exit barrier."""

import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading

import pytest
from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.agent.server import api
from torch.distributed.elastic.utils.store import barrier

from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.store import tcp
from ft_supervisor.store.base import StoreLost
from ft_supervisor.store.keys import BARRIER, Keys


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_it_is_hosted_on_the_socket_that_it_is_given(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    assert sock.fileno() == -1
    store.set("k", b"v")
    assert tcp.connect("127.0.0.1", port, 30).get("k") == b"v"


def test_a_port_is_free_again_after_its_store() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    client = store.clone()
    del store
    gc.collect()
    with pytest.raises(StoreLost):
        client.get("n")
    socket.create_server(("127.0.0.1", port)).close()


def test_nobody_there_is_said_at_once() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with pytest.raises(StoreLost, match=f"127.0.0.1:{port}"):
            tcp.connect("127.0.0.1", port, 60)


def test_a_name_that_is_none_is_said_at_once() -> None:
    with pytest.raises(StoreLost):
        tcp.connect("a" * 70, 1, 5)  # too long to be looked up at all


def test_somebody_else_behind_the_port_is_said() -> None:
    stranger = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                stranger.accept()[0].close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    try:
        with pytest.raises(StoreLost):
            tcp.connect("127.0.0.1", stranger.getsockname()[1], 1)
    finally:
        stranger.shutdown(socket.SHUT_RDWR)
        thread.join()
        stranger.close()


def test_what_it_adds_to_the_environment_leaves_a_users_choice_alone() -> None:
    assert "TORCH_CPP_LOG_LEVEL" in os.environ
    assert "RES_OPTIONS" not in tcp.ADDED_TO_ENVIRONMENT  # tests/conftest.py has set it before


def test_torchs_exit_barrier_sets_the_key_that_standbys_watch() -> None:
    keys, cycle = Keys("7.0.0"), Cycle(3, 4)
    store = tcp.serve(socket.create_server(("127.0.0.1", 0)))
    assert api._TERMINAL_STATE_SYNC_ID == BARRIER
    below = PrefixStore(keys.barrier_prefix(cycle), store.torch_store)
    with pytest.raises(DistStoreError):
        barrier(below, 2, BARRIER, barrier_timeout=0.1)  # one of two: not done
    assert store.get(keys.barrier_done(cycle)) is None
    other = Cycle(3, 5)
    barrier(PrefixStore(keys.barrier_prefix(other), store.torch_store), 1, BARRIER, barrier_timeout=60)
    assert store.get(keys.barrier_done(other)) is not None
    assert store.get(keys.barrier_done(cycle)) is None


MUTE = """
import socket, sys, threading
from ft_supervisor.store import tcp
from ft_supervisor.store.base import StoreLost

def die(server):
    while True:
        server.accept()[0].close()

server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=die, args=(server,), daemon=True).start()
try:
    tcp.connect(*server.getsockname(), timeout=2)
except StoreLost as error:
    print("lost")
"""


def test_a_store_that_dies_under_a_new_connection_is_no_stack_trace() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", MUTE], env=environ, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("lost\n", "")
