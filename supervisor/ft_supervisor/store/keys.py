"""The names of all keys and queues of one run. docs/reference/store-keys.md lists who writes them."""

from __future__ import annotations

from ft_supervisor.core.protocol.model import Cycle

BARRIER = "torchelastic/agent/terminal_state"
"""The prefix that torch's elastic agent gives its exit barrier (torch.distributed.elastic.agent.server.api)."""
LAST_MEMBER = "last_member"
"""What torch's barrier sets below its prefix when all have come (torch.distributed.elastic.utils.store)."""


class Keys:
    """The keys of the run `run_id`."""

    def __init__(self, run_id: str) -> None:
        self._root = f"ft/{run_id}"
        self.hello = f"{self._root}/hello"
        self.policy = f"{self._root}/policy"
        self.inbox = f"{self._root}/inbox"
        self.permanent_close = f"{self._root}/permanent_close"
        self.pulse = f"{self._root}/pulse"

    def mail(self, infra_rank: int, incarnation: int, connection: int) -> str:
        """Return the queue of directives for this connection of this incarnation of a node's agent."""
        return f"{self._root}/mail/{infra_rank}/{incarnation}/{connection}"

    def heartbeat(self, infra_rank: int, incarnation: int, connection: int) -> str:
        """Return the key of the newest round that the node's agent has read in the pulse, a decimal number.

        Each connection has its own key: a heartbeat of a connection whose Register has not arrived yet must prove
        nothing, as the node may have promised another coordinator meanwhile.
        """
        return f"{self._root}/heartbeat/{infra_rank}/{incarnation}/{connection}"

    def barrier_prefix(self, cycle: Cycle) -> str:
        """Return the prefix below which torch enters its exit barrier; without the slash that PrefixStore adds."""
        return f"{self._root}/cycle/{cycle}"

    def barrier_done(self, cycle: Cycle) -> str:
        """Return the key that torch sets when all active nodes of the cycle have entered its exit barrier."""
        return f"{self.barrier_prefix(cycle)}/{BARRIER}/{LAST_MEMBER}"
