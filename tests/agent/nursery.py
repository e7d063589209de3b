"""`python nursery.py FD`: a process that has imported torch once, and forks agents and stores, which need not wait.

Each request on the socket FD is a JSON object {"kind", "log", ...}, for a store with the socket that it listens on.
The answer is {"started": pid}, for an agent with the daemon's end of its link, for "workers" with the test's end of a
socket over which it drives agent.workers.Workers, since that ends everything below its process: the test sends pickles
of (job, node) and then of (method, *arguments), and gets ("event", event) as they come and ("answer", value) for each
call; "now" among the arguments stands for the time. {"pid", "code"} reports a child's end.
"""

import itertools
import json
import operator
import os
import pickle
import select
import socket
import sys
import threading
import time
import traceback
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from torch.distributed.elastic.multiprocessing.subprocess_handler import get_subprocess_handler

from ft_supervisor.agent import __main__ as agent
from ft_supervisor.agent import shell  # noqa: F401 - what takes long to import
from ft_supervisor.agent.node_agent import NodeAgent, quiet_torch, worker_environment
from ft_supervisor.agent.workers import Workers
from ft_supervisor.core.protocol.actions import Pulse
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import PROTOCOL, Job
from ft_supervisor.evidence.gather import Gathering
from ft_supervisor.process import clock
from ft_supervisor.process.background import Background
from ft_supervisor.process.link import LINK_FD_ENV, pair
from ft_supervisor.process.log import setup
from ft_supervisor.process.tree import become_subreaper, pdeath_command, sweep
from ft_supervisor.store import tcp
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.pulses import dump_pulse


def be_store(listening: socket.socket, run_id: str, hello: dict[str, Any], term: int | None) -> None:
    """Run a coordinator's store with a pulse that moves, and without any decisions. With a term it is in charge, and a
    majority has always read the round before the newest."""
    store, keys = tcp.serve(listening), Keys(run_id)
    for number in itertools.count(1):
        lease = number - 1 if term is not None else 0
        store.set(keys.pulse, dump_pulse(Pulse(number, term, lease), time.time()))
        if number == 1:
            policy = hello.pop("configuration", "")
            store.set(keys.policy, policy.encode())
            ours = {"run_id": run_id, "protocol": PROTOCOL, "infra_rank": 0}
            hello = ours | {"policy": sha256(policy.encode()).hexdigest()} | hello
            store.set(keys.hello, json.dumps(hello).encode())
        time.sleep(0.05)


def drive(sock: socket.socket) -> None:
    """Run the main loop of Workers until the test closes the socket. Leaves by os._exit."""
    calls: SimpleQueue[Any] = SimpleQueue()
    with sock.makefile("rwb") as file:
        job, node = pickle.load(file)
        setup("agent", node.name, level="debug")  # tests wait for lines that are not written by default
        quiet_torch()
        worker_environment(job)
        become_subreaper()
        workers = Workers(job, node, lambda: calls.put(None))
        threading.Thread(target=_receive, args=(file, calls), daemon=True).start()
        while True:
            try:
                call = calls.get(timeout=0.05)
            except Empty:
                call = None
            if call is not None:
                pickle.dump(("answer", _call(workers, *call)), file)
            for event in workers.poll(clock.now()):
                pickle.dump(("event", event), file)
            file.flush()


def _receive(file: Any, calls: SimpleQueue[Any]) -> None:
    while True:
        try:
            calls.put(pickle.load(file))
        except EOFError:
            os._exit(0)


def _call(workers: Workers, method: str, *arguments: Any) -> Any:
    if method == "open_fds":
        return sorted(path.name for path in Path("/proc/self/fd").iterdir())
    if method == "by_torch":
        return by_torch(workers, *arguments)
    now = clock.now()
    value = operator.attrgetter(method)(workers)(*(now if argument == "now" else argument for argument in arguments))
    return value.wait(30.0) if isinstance(value, Background | Gathering) else value


def by_torch(workers: Workers, job: Job, run: Run) -> None:
    """Start the one worker of `run` by torch's own SubprocessHandler, and wait for its end."""
    agent, streams = NodeAgent(job), workers.evidence.open(run)[0]
    env = {**agent.prepare(run)[0], **streams.env}
    entrypoint, *words = pdeath_command(job.command)
    stdout, stderr = f"/proc/self/fd/{streams.stdout}", f"/proc/self/fd/{streams.stderr}"
    get_subprocess_handler(entrypoint, tuple(words), env, stdout, stderr, 0).proc.wait()
    workers.evidence.close()


def be(request: dict[str, Any], sock: socket.socket) -> None:
    """Run as the child."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if request["kind"] == "agent":
        os.chdir(Path(request["log"]).parent)
        os.environ[LINK_FD_ENV] = str(sock.fileno())
        agent.main()
    if request["kind"] == "workers":
        os.chdir(Path(request["log"]).parent)
        drive(sock)
    be_store(sock, request["run_id"], request["hello"], request["term"])


class Nursery:
    """The parent process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pids: dict[int, int] = {}

    def run(self) -> None:
        """Serve requests; never returns. What a killed agent leaves is below this process, as it is its daemon's."""
        become_subreaper()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        self._control.send(b"{}")
        while True:
            for fd, _ in poll.poll():
                if fd == self._control.fileno():
                    poll.register(self._fork(), select.POLLIN)
                else:
                    poll.unregister(fd)
                    self._tell_end(fd)

    def _fork(self) -> int:
        data, fds, _, _ = socket.recv_fds(self._control, 65536, 1)
        if not data:  # the tests have ended, or were killed
            sweep(os.getpid())
            sys.exit(0)
        request = json.loads(data)
        # the pair is made here, as an agent's parent has to be who made its link
        ours, theirs = (None, socket.socket(fileno=fds[0])) if fds else pair()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            if ours is not None:
                ours.close()
            try:
                be(request, theirs)
            except BaseException:
                traceback.print_exc()
            os._exit(99)
        theirs.close()
        answer = json.dumps({"started": pid}).encode()
        socket.send_fds(self._control, [answer], [ours.fileno()] if ours is not None else [])
        if ours is not None:
            ours.close()
        pidfd = os.pidfd_open(pid)
        self._pids[pidfd] = pid
        return pidfd

    def _tell_end(self, pidfd: int) -> None:
        pid, status = os.waitpid(self._pids.pop(pidfd), 0)
        os.close(pidfd)
        self._control.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    Nursery(socket.socket(fileno=int(sys.argv[1]))).run()
