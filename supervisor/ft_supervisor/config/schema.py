"""Which keys there are and what each may hold: the tables of the loader, the JSON Schemas and the canonical form."""

import dataclasses
from typing import Any

from ft_supervisor.config import health, job
from ft_supervisor.config.failures import MAX_RESTARTS, failures
from ft_supervisor.config.kind import NOT_EMPTY, Kind, Table, object_schema
from ft_supervisor.config.spares import pools
from ft_supervisor.config.topology import domain
from ft_supervisor.config.values import (
    boolean,
    choice,
    count,
    duration,
    listen,
    one_of_or,
    path_template,
    signal_name,
    size,
    text,
)
from ft_supervisor.core.model import Timeouts
from ft_supervisor.core.settings import OnExhausted, Tee

_TIMEOUTS = {
    "heartbeat": "How often agents say that they are alive.",
    "coordinator": "A silent coordinator counts as lost; at least twice heartbeat.",
    "fence": "A node cut off for so long kills its own workers; at least coordinator + 3 heartbeats + 1s.",
    "node_lost": "A silent node counts as lost; at least fence + 1s.",
    "probe": "How soon a node must answer when a peer's workers have crashed.",
    "agent": "A silent agent is replaced by its daemon.",
    "restart_grace": "Between SIGTERM and SIGKILL when a new cycle waits.",
    "stop_grace": "The same at the end of the job.",
    "join": "For enough nodes to register.",
    "exit_barrier": "For the last active nodes to finish.",
    "takeover": "A node without a coordinator that has a majority gives up after so long; more than fence.",
    "close_grace": "For all nodes to hear the verdict.",
}


def _timeout(name: str) -> Kind:
    return duration(zero=name.endswith("_grace")).about(_TIMEOUTS[name])


_CAPPED = "The most that a job may ask for."
LIMITS: Table = {
    "limits.max_restarts": count(0, MAX_RESTARTS).about(f"{_CAPPED} Each rule's budget.max."),
    "limits.restart_grace": duration(zero=True).about(_CAPPED),
    "limits.stop_grace": duration(zero=True).about(_CAPPED),
    "limits.join": duration().about(_CAPPED),
    "limits.takeover": duration().about(_CAPPED),
    "limits.before_end": duration(zero=True).about(_CAPPED),
    "limits.interruption_grace": duration(zero=True).about(_CAPPED),
}

POLICY: Table = {
    "topology.domain": domain().about("Which nodes belong together."),
    "network.interface": text("auto or the name of a network interface", r"[^\s/]{1,15}").about(
        "The interface whose address is announced; auto announces the node's name."
    ),
    "network.suffix": text('what follows the node\'s name, such as "-ib0", or ""', r"[A-Za-z0-9.-]*", 100).about(
        "Appended to the node's name."
    ),
    "network.port": one_of_or(("auto",), 1024, 65535 - 7).about("The next 7 are tried when it is taken."),
    "coordinator.candidates": job.candidates().about("How many nodes keep a coordinator, or the infra_ranks of those."),
    "spares.pools": pools().about("Which standbys may replace whom."),
    "spares.on_exhausted": choice(*(word.value for word in OnExhausted)).about("What happens with too few nodes."),
    "health.checks": health.checks().about("Commands that exit with 0 on a healthy node."),
    "health.interval": duration().about("Between two rounds of checks on a standby."),
    "health.disk": health.disk().about("Whether run_dir and the node's own folder are writable, and run_dir has room."),
    "health.gpu": health.gpu().about("What NVML says of the GPUs."),
    "health.clock_offset": duration().about("From the coordinator's clock; beyond it there is a warning."),
    "failures": failures().about("What answers a failure; the first rule that matches."),
    **{f"timeouts.{field.name}": _timeout(field.name) for field in dataclasses.fields(Timeouts)},
    "interruption.before_end": duration(zero=True).about("So long before its time limit a job is stopped; 0s: never."),
    "interruption.signal": signal_name(caught=True).about("What workers get first."),
    "interruption.grace": duration(zero=True).about("Until they get SIGKILL."),
    "interruption.requeue": boolean().about("Have Slurm run the job again."),
    "interruption.drain": choice("next_cycle", "now").about("When to leave a node that Slurm drains."),
    # slurmctld serves a whole cluster: many jobs that ask it all the time would bring it down.
    "interruption.poll": duration(least=1.0).about("How often Slurm is asked, by one node; at least 1s."),
    "accounting.comment": boolean().about("Write how the job ended into its Comment."),
    "accounting.exit_code": boolean().about("Let `report --fix-exit-codes` put the job's DerivedExitCode right."),
    "metrics.listen": listen().about("Where the coordinator answers Prometheus."),
    "metrics.port": count(1024, 65535).about("The port of that."),
    "logs.tee": choice(*(word.value for word in Tee)).about("Whose output goes to the job's output too."),
    "logs.prefix": boolean().about("Begin each line there with its rank and node."),
    "logs.max_size": size().about("Of one file of a worker's output."),
    "logs.keep": count(0, 100).about("So many former parts of each file are kept."),
    "logs.format": choice("text", "json").about("Of ft-supervisor's own log: key=value, or JSON."),
    "faults.allow": boolean().about("Whether `ft-supervisor fault` may hurt the job."),
    **LIMITS,
}

JOB_KEYS: Table = {
    "name": text("one line of at most 100 characters", r"\S|\S.*\S", 100).about("What logs call the job."),
    "cluster": text("a cluster's name, auto or none", r"[A-Za-z0-9_][A-Za-z0-9_.-]*", 100).about(
        "Whose policy applies; auto takes SLURM_CLUSTER_NAME."
    ),
    "nodes.active": job.active().about("How many nodes train; the others stand by."),
    "nodes.segment": count(1, 100_000).about("Active nodes come in groups of so many of one domain."),
    "nodes.grow": choice("at_restart", "now").about("When a job with fewer nodes than max takes more."),
    "workers.per_node": one_of_or(("gpu", "cpu"), 1, 1024).about("How many workers a node has."),
    "workers.command": health.command().about("What a worker runs; what follows -- replaces it."),
    "workers.env": job.env().about("Variables for the workers."),
    "run_dir": path_template().about("Where runs keep their files; relative to where the job was submitted."),
    "hang.after": duration().about("A worker that says nothing for so long hangs."),
    "hang.first": duration().about("The same until it first says something."),
    "hang.signal": signal_name(caught=True).about("Makes faulthandler print the workers' stacks."),
    "checkpoint.step_file": path_template(empty=True).about("Where the job writes its newest checkpoint's step."),
}

JOB: Table = {**JOB_KEYS, **{f"policy.{key}": kind for key, kind in POLICY.items() if key not in LIMITS}}
KEYS: Table = {**JOB_KEYS, **POLICY}
"""All keys by the names that they have once everything is merged."""


def json_schema(of: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a job's file ("job") or a policy ("policy").

    It says what each key may hold by itself; what keys must be to one another only the loader checks.
    """
    if of == "policy":
        schema = object_schema(POLICY)
    else:
        schema = object_schema(JOB, ("nodes.active",))
        for name in NOT_EMPTY:
            schema["properties"][name]["minProperties"] = 1
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ft-supervisor {'policy' if of == 'policy' else 'job.yaml'}",
        **schema,
    }
