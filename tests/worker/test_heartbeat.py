"""Heartbeats and reports of progress from a function that runs."""

from collections.abc import Callable

import pytest
from tests.worker.fake_agent import Worker

Start = Callable[..., Worker]


def test_a_ping_is_a_heartbeat_and_the_first_one_is_progress(start: Start) -> None:
    worker = start("""
import threading
os.environ['WATCHDOG_USEC'] = '5000000'

@worker.restartable
def train():
    worker.ping()
    worker.ping(step=7)
    with worker.unwatched():
        with worker.unwatched():
            pass
        worker.ping()
    thread = threading.Thread(target=worker.ping)  # from a thread, too
    thread.start()
    thread.join()
    say('in')
    time.sleep(600)

train()
""")
    beat = b"WATCHDOG=1"
    beats = [beat, b"WATCHDOG=1\nSTATUS=step 7", b"WATCHDOG_USEC=0", beat, b"WATCHDOG_USEC=5000000", beat]
    worker.begin()
    worker.expect("progress")
    worker.says("in")
    assert [worker.notified.recv(4096) for _ in beats] == beats
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.expect("progress")
    worker.says("in")
    worker.send("abort")
    worker.parks()


def test_the_watch_is_on_again_when_a_section_without_it_is_left_by_a_restart(start: Start) -> None:
    worker = start("""
os.environ['WATCHDOG_USEC'] = '1'
@worker.restartable
def train():
    with worker.unwatched():
        say('in')
        time.sleep(600)
train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks()
    assert [worker.notified.recv(4096) for _ in range(2)] == [b"WATCHDOG_USEC=0", b"WATCHDOG_USEC=1"]


def test_automatic_heartbeats_stop_with_the_main_thread(start: Start) -> None:
    worker = start("""
import threading
worker.automatic_progress(0.02)
worker.automatic_progress(0.02)  # of no effect

@worker.restartable
def train():
    if worker.current().iteration == 0:
        while True:
            sum(range(1000))
    say('blocked')
    threading.Lock().acquire()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

train()
""")
    worker.begin()
    for _ in range(20):
        assert worker.notified.recv(4096) == b"WATCHDOG=1"
    worker.send("abort")
    worker.parks(threads=[])
    worker.run("0.1")
    worker.expect("called")
    worker.says("blocked")
    worker.notified.settimeout(0.5)  # 25 intervals
    with pytest.raises(TimeoutError):  # what is on its way may still come
        for _ in range(100):
            worker.notified.recv(4096)
    worker.send("abort")
    worker.parks(threads=[])


def test_pings_do_not_wait_for_an_agent_that_does_not_read(start: Start) -> None:
    worker = start("""
@worker.restartable
def train():
    for _ in range(5000):
        worker.ping()
    os.environ['NOTIFY_SOCKET'] = '@ft-supervisor-not-there'
    worker.ping()

train()
""")
    worker.begin()
    worker.expect("progress")
    worker.returns()
