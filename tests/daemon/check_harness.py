"""Health checks as shell scripts, and the types of the fixtures that run them."""

from __future__ import annotations

from collections.abc import Callable

from ft_supervisor.core.protocol.health_types import CheckOutcome
from ft_supervisor.core.protocol.model import Node
from ft_supervisor.core.protocol.settings import Check

BOUND = 60.0
NODE = Node(3, "n3", "127.0.0.1")
Finish = Callable[[], tuple[CheckOutcome, ...]]
Run = Callable[..., tuple[CheckOutcome, ...]]
DEAF = "trap '' TERM INT HUP; echo before; while :; do sleep 600; done"


def sh(name: str, script: str, *arguments: object, timeout: float = BOUND, retries: int = 0) -> Check:
    return Check(name, ("sh", "-c", script, *map(str, arguments)), timeout, retries)
