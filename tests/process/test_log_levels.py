"""What agents and daemons write at the level info: nothing that each node of a healthy job would."""

from pathlib import Path

from ft_docs.events import events

RARE = {
    "batch_host_unknown",
    "comment_not_written",
    "comment_written",
    "completing_job",
    "coordinator_not_found",
    "health",
    "job",
    "job_completed",
    "note",
    "nothing_to_complete",
    "policy",
    "requeue_forbidden",
    "requeued",
    "slurm_requeues",
    "stands_in",
    "waiting_to_complete_job",
}
"""Events of one node, once for a job, or of a node with which something is wrong: no coordinator for ten seconds, a
health check that passes again. `note` is a line for the person who has called a command."""


def test_no_node_writes_a_line_for_being_well() -> None:
    of_nodes = {
        event.name
        for event in events(Path(__file__).resolve().parents[2])
        if "info" in event.levels and not {"coordinator"} >= set(event.process.split(", "))
    }
    assert of_nodes == RARE
