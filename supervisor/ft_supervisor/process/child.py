"""The first steps of a process that the daemon has started: an agent or a coordinator."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys

from ft_supervisor.core.protocol.model import CONFIG_ERROR
from ft_supervisor.process import signals
from ft_supervisor.process.link import LINK_FD_ENV, Link, LinkClosed
from ft_supervisor.process.prctl import die_with_parent

MAX_FILES = 65536
"""Two connections per agent for 30,000 nodes. There is a limit because workers inherit it, and some programs try to
close every file descriptor that they may have."""


def enter_child() -> Link:
    """Take the link out of the environment, die with the daemon, ignore signals, and raise the limit of open files.

    Call it first, in the main thread, before heavy imports. The daemon must start its children from a thread that lives
    as long as the daemon does (PR_SET_PDEATHSIG looks at the thread). Raises LinkClosed when the daemon is dead
    already. Exits with 2 when there is no link, because then a person has started the process.
    """
    # Slurm and terminals signal every process of a task, some twice; orders come through the link alone.
    for number in signals.TERMINATING:
        signal.signal(number, signals.nothing)
    signals.release()
    fd = os.environ.pop(LINK_FD_ENV, "")
    if not fd.isdecimal():
        print(f"{sys.argv[0]} is started by ft-supervisor, not by hand: {LINK_FD_ENV} is not set", file=sys.stderr)
        raise SystemExit(CONFIG_ERROR)
    os.set_inheritable(int(fd), False)
    sock = socket.socket(fileno=int(fd))
    if not die_with_parent(_creator(sock)):
        raise LinkClosed("the daemon died before its child began")
    _raise_file_limit()
    return Link(sock)


def _creator(sock: socket.socket) -> int:
    """Return the pid of the process that made the socket pair, the daemon (unix(7), SO_PEERCRED)."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
