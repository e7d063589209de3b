"""Recognises a failure that another worker's end has caused, by what the worker said. Pure.

When a worker ends, those that wait for it in a collective fail with an error of their connection, and may be reported
before it. Such words break ties between failures, and decide nothing else: a broken network has them as well.
"""

from __future__ import annotations

import re

from ft_supervisor.core.protocol.model import Failure

_WORDS = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|broken pipe|socket closed|remote process exited|"
    r"ncclRemoteError|NCCL communicator was aborted|watchdog caught collective operation timeout|"
    r"timed out waiting \d+ms for (?:send|recv)|failed to recv|recvValue failed|store.*timed? ?out",
    re.IGNORECASE,
)
"""gloo's, NCCL's and TCPStore's words about a peer that is gone."""


def lost_a_peer(failure: Failure) -> bool:
    """Whether the worker says that its connection to another one has ended."""
    return _WORDS.search(failure.message or failure.last_lines) is not None
