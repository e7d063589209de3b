"""Binds the store's port: on the one address that is announced to peers (Job.listen), or on all of the node's.

It binds all addresses where it is not certain which one peers use (daemon.network.only), and where the announced one is
none of this node's, as behind an address translation or in a container's own network: the job would end if the store
listened where no peer connects.
"""

from __future__ import annotations

import errno
import socket

from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import bind_first

_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def bind(job: Job) -> socket.socket:
    """Listen on the first free port. Raises PortsTaken, which names them all, and OSError."""
    if job.listen:
        try:
            return bind_first(job.listen, job.ports)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
    return bind_first("", job.ports)


def tell(job: Job, node: Node, sock: socket.socket) -> None:
    """Log it if the store listens on more than the announced address."""
    if sock.getsockname()[0] not in ("::", "0.0.0.0"):
        return
    name = job.hosts[node.infra_rank] or node.addr
    why = f"{job.listen} is no address of this node" if job.listen else f"{name} is not one address that others share"
    log("listens_everywhere", reason=why)
