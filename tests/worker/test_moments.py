"""Signals, aborts and ends at moments at which they are easily mistaken: nothing is lost or taken twice."""

import os
import signal
from collections.abc import Callable

import pytest
from tests.worker.fake_agent import Worker

from ft_supervisor.worker import Restart, notify, unwatched

Start = Callable[..., Worker]
OURS = signal.SIGRTMIN + 6


def test_a_section_of_the_second_function_is_finished_too(start: Start) -> None:
    """The end of the first function is not that of a section in the second one."""
    worker = start("""
@worker.restartable
def first(): pass

@worker.restartable(abort=lambda state: say('abort hook'))
def second():
    with worker.atomic():
        say('saving')
        wait_for('go')
        say('saved')
    say('NOT REACHED')

first()
second()
""")
    worker.begin()
    worker.expect("completed")
    worker.send("release")
    worker.expect("called")
    worker.says("saving")
    worker.send("abort")
    with pytest.raises(TimeoutError):
        worker.receive(bound=0.5)
    assert "abort hook" not in worker.output()
    worker.go("go")
    worker.says("saved")
    worker.expect("fatal")  # all begin anew with the first function
    worker.ends(1)
    assert "NOT REACHED" not in worker.output()


def test_one_that_waits_for_the_others_is_not_watched(start: Start) -> None:
    worker = start("""
os.environ['WATCHDOG_USEC'] = '5000000'

@worker.restartable
def train():
    worker.ping()

train()
""")
    worker.begin()
    worker.expect("progress")
    worker.expect("completed")
    assert [worker.notified.recv(4096) for _ in range(2)] == [b"WATCHDOG=1", b"WATCHDOG_USEC=0"]
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    beats = [b"WATCHDOG_USEC=5000000", b"WATCHDOG=1", b"WATCHDOG_USEC=0", b"WATCHDOG_USEC=5000000"]
    worker.expect("progress")
    worker.returns()
    assert [worker.notified.recv(4096) for _ in beats] == beats


def test_our_signal_has_no_effect_where_nothing_is_due(start: Start) -> None:
    """In the function, while it waits for the others, parked, in hooks, in the script before and after."""
    worker = start("""
def storm(where):
    import signal
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGRTMIN + 6)
    say(where)

@worker.restartable(initialize=lambda _: storm('initialize'), finalize=lambda _: storm('finalize'),
                    health_check=lambda _: storm('health'), completion=lambda _: storm('completion'))
def train():
    storm('function')
    if not worker.current().iteration:
        raise ValueError('bad')

train()
storm('after')
""")
    worker.begin()
    worker.expect("failed", exception="ValueError")
    worker.parks()
    for _ in range(20):
        os.kill(worker.pid, OURS)
    worker.run("0.1")
    worker.expect("called")
    worker.expect("completed")
    for _ in range(20):
        os.kill(worker.pid, OURS)
    worker.send("release")
    worker.ends(0)
    said = ["initialize", "function", "finalize", "health", "initialize", "function", "completion", "after"]
    assert [line for line in worker.output().splitlines() if line in said] == said


def test_signals_while_the_function_is_left_and_the_process_quiesces(start: Start) -> None:
    """The abort's own signal, and hundreds more: in the hooks, in the printing of a traceback, in the parking."""
    worker = start("""
import signal, threading

def storm():
    while worker.current() and worker.current().iteration < 8:
        os.kill(os.getpid(), signal.SIGRTMIN + 6)
        time.sleep(0.0005)

@worker.restartable(finalize=lambda _: time.sleep(0.05), health_check=lambda _: time.sleep(0.05))
def train():
    here = worker.current().iteration
    if not here:
        worker.allow_thread('storm')
        threading.Thread(target=storm, name='storm', daemon=True).start()
    if here == 8:
        return
    if here % 2:
        raise ValueError('x' * 10000)
    time.sleep(600)

train()
""")
    worker.begin()
    for number in range(8):
        if number % 2:
            worker.expect("failed", exception="ValueError")
        else:
            worker.send("abort")
        worker.parks(threads=[])
        worker.run(f"0.{number + 1}")
        worker.expect("called")
    worker.returns()


def test_an_abort_hook_gets_the_cycle_that_ends(start: Start) -> None:
    worker = start("""
@worker.restartable(abort=lambda state: say('abort', state.cycle))
def train():
    if worker.current().cycle != '0.last':
        time.sleep(600)
train()
""")
    worker.begin()
    worker.send("abort")
    worker.parks()
    for number in range(100):
        worker.run(f"0.{number}")
        worker.send("abort")
        worker.expect("called")
        worker.parks()
    worker.run("0.last")
    worker.expect("called")
    worker.returns()
    assert worker.output().split("\n")[1:-1] == [f"abort 0.{number}" for number in range(100)]


def test_a_ping_of_a_thread_ends_automatic_heartbeats_while_the_main_thread_is_blocked(start: Start) -> None:
    """What the interpreter has still to call for them must exist when it comes to that."""
    worker = start("""
import gc, threading

@worker.restartable
def train():
    worker.automatic_progress(0.02)
    follower = next(thread for thread in threading.enumerate() if thread.name.endswith('-progress'))
    lock = threading.Lock()
    lock.acquire()

    def body():
        time.sleep(0.2)
        worker.ping()
        follower.join()
        gc.collect()
        lock.release()

    threading.Thread(target=body).start()
    lock.acquire()
    say('goes on', sum(range(100000)))

train()
""")
    worker.begin()
    worker.expect("progress")
    worker.says("goes on 4999950000")
    worker.returns()


def test_hundreds_of_threads_with_long_names_fit_into_a_message(start: Start) -> None:
    worker = start("""
import threading
threading.stack_size(65536)

@worker.restartable
def train():
    for number in range(300):
        threading.Thread(target=time.sleep, args=(600,), name=f'{number}-' + 'x' * 1000, daemon=True).start()
    say('in')
    time.sleep(600)

train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    assert len(worker.parks()["threads"]) > 10


def test_a_section_without_a_watch_that_was_not_entered_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or no later one would tell the hang watch of itself."""

    def left(_: str) -> None:
        raise Restart

    monkeypatch.setattr(notify, "notify", left)
    with pytest.raises(Restart), unwatched():
        raise AssertionError
    sent: list[str] = []
    monkeypatch.setattr(notify, "notify", sent.append)
    with unwatched():
        assert sent == ["WATCHDOG_USEC=0"]
