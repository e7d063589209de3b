"""Threads and children that a function leaves behind, and processes that are forked in it."""

import os
import signal
from collections.abc import Callable

from tests.worker.fake_agent import Worker

Start = Callable[..., Worker]

THREADS = """
import threading
forever = threading.Event()

def begin(name, target=forever.wait):
    threading.Thread(target=target, name=name, daemon=True).start()

begin('older')
worker.allow_thread('exact')
worker.allow_thread('writer-*')

@worker.restartable
def train():
    here = worker.current().iteration
    if here == 0:
        for name in ('exact', 'writer-1', 'stray', 'writer'):
            begin(name)
    if here == 1:
        begin('ends soon', lambda: (wait_for('parking'), time.sleep(0.1)))
    if here == 2:
        forever.set()
    say('in', here)
    time.sleep(600)

train()
"""


def test_threads_that_are_left_behind_are_named(start: Start) -> None:
    worker = start(THREADS)
    worker.begin()
    worker.says("in 0")
    worker.send("abort")
    worker.parks(threads=["stray", "writer"])
    worker.run("0.1")
    worker.expect("called")
    worker.says("in 1")
    worker.send("abort")
    worker.go("parking")
    worker.parks(threads=["stray", "writer"])  # the one that ends soon is waited for
    worker.run("0.2")
    worker.expect("called")
    worker.says("in 2")
    worker.send("abort")
    worker.parks(threads=[])


def test_children_that_were_kept_are_reported(start: Start) -> None:
    worker = start("""
import multiprocessing, multiprocessing.resource_tracker, subprocess
kept = subprocess.Popen(['sleep', '150'])
by_pid = subprocess.Popen(['sleep', '150'])
worker.keep(kept, by_pid.pid)
try:
    worker.keep('a string')
except TypeError as error:
    say(error)

@worker.restartable
def train():
    if worker.current().iteration == 1:
        multiprocessing.resource_tracker.ensure_running()
        stray = subprocess.Popen(['sleep', '150'])
        process = multiprocessing.Process(target=time.sleep, args=(600,), daemon=True)
        process.start()
        worker.keep(process)
        say('stray', stray.pid)
    say('pids', kept.pid, by_pid.pid, *(child.pid for child in multiprocessing.active_children()))
    time.sleep(600)

train()
""")
    worker.begin()
    for cycle in (1, 2):
        worker.says_beginning("pids ")
        worker.send("abort")
        known = worker.output().splitlines()[-1].split()[1:]
        kept = worker.parks(threads=[])["kept"]
        assert set(map(int, known)) <= set(kept)
        assert len(kept) == len(known) + (cycle == 2), worker.output()  # the resource tracker is no stray
        worker.run(f"0.{cycle}")
        worker.expect("called")
    assert "'a string' is no process, no pid and no DataLoader" in worker.output()


FORKS = """
import multiprocessing
context = multiprocessing.get_context('fork')

@worker.restartable
def train():
    here = worker.current().iteration
    if here == 0:
        if os.fork():
            say('parent')
            time.sleep(600)
        wait_for('child')
        worker.ping()
        say('child returns')  # into the library
        return 'child'
    if here == 1:
        if os.fork():
            say('parent again')
            time.sleep(600)
        wait_for('second child')
        raise ValueError('of the child')
    if here == 2:
        for method in ('fork', 'spawn'):
            process = multiprocessing.get_context(method).Process(target=in_child)
            process.start()
            process.join()
            say(method, process.exitcode)
        assert process.exitcode == 0

def in_child():
    assert worker.current() is None or os.getpid() != main
    assert plain() == 'plain', 'in a child'

main = os.getpid()

@worker.restartable
def plain():
    return 'plain'

if __name__ == '__main__':
    try:
        value = train()
    except ValueError as error:
        say('raised', error)
        sys.exit(3)
    say('returned', value)
"""


def test_a_forked_child_never_speaks_to_the_agent(start: Start) -> None:
    worker = start(FORKS)
    worker.begin()
    worker.says("parent")
    worker.go("child")
    worker.says("returned child")
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.says("parent again")
    worker.go("second child")
    worker.says("raised of the child")
    worker.send("abort")
    worker.parks()
    worker.run("0.2")
    worker.expect("called")
    worker.says("fork 0")
    worker.says("spawn 0")
    worker.returns()
    assert worker.output().count("returned None") == 1


def test_a_signal_to_a_child_is_of_no_effect(start: Start) -> None:
    """A child has the handler, but no function to leave."""
    worker = start("""
@worker.restartable
def train():
    child = os.fork()
    if not child:
        say('child', os.getpid())
        wait_for('go')
        say('child goes on')
        os._exit(0)
    os.waitpid(child, 0)

train()
""")
    worker.begin()
    worker.says_beginning("child ")
    child = int(worker.output().split()[1])
    os.kill(child, signal.SIGRTMIN + 6)
    worker.go("go")
    worker.says("child goes on")
    worker.returns()
