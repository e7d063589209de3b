"""Lists all keys, and makes the JSON Schemas of them.

The keys are declared on the fields that hold their values (`core.protocol.keys`), from `config.model.JobConfig` down.
"""

from typing import Any

from ft_supervisor.config.declared import each_key, table
from ft_supervisor.config.model import JobConfig
from ft_supervisor.config.validator import NOT_EMPTY, Table, object_schema
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.settings import Budget

_JOB_SECTIONS = ("name", "cluster", "nodes", "workers", "run_dir", "hang", "checkpoint", "notify")
"""The order in which people see the sections that only a job may have, and then those of a policy."""
_POLICY_SECTIONS = (
    "topology",
    "network",
    "coordinator",
    "spares",
    "health",
    "failures",
    "fail_fast",
    "timeouts",
    "interruption",
    "accounting",
    "metrics",
    "logs",
    "faults",
)
_CAPPED = "The most that a job may ask for."
MOST_RESTARTS = "limits.max_restarts"
"""The limit of every rule's budget.max."""


def _within(sections: tuple[str, ...]) -> Table:
    keys_of = table(JobConfig)
    assert {key.partition(".")[0] for key in keys_of} == {*_JOB_SECTIONS, *_POLICY_SECTIONS}
    return {
        key: validator for section in sections for key, validator in keys_of.items() if key.partition(".")[0] == section
    }


def _limited() -> dict[str, str]:
    order = list(_within(_POLICY_SECTIONS))
    marks = {key: one.mark(keys.Limited) for key, one in each_key(JobConfig)}
    return {f"limits.{marks[key].name}": key for key in order if marks[key] is not None}


LIMITED = _limited()
"""Each limit with the key that it bounds."""
JOB_KEYS: Table = _within(_JOB_SECTIONS)
_OF_POLICY: Table = _within(_POLICY_SECTIONS)
LIMITS: Table = {
    MOST_RESTARTS: table(Budget)["max"].about(f"{_CAPPED} Each rule's budget.max."),
    **{limit: _OF_POLICY[key].about(_CAPPED) for limit, key in LIMITED.items()},
}
POLICY: Table = {**_OF_POLICY, **LIMITS}
JOB: Table = {**JOB_KEYS, **{f"policy.{key}": validator for key, validator in _OF_POLICY.items()}}
KEYS: Table = {**JOB_KEYS, **POLICY}
"""All keys by the names that they have once everything is merged."""
REQUIRED = {key: one.mark(keys.Required).right for key, one in each_key(JobConfig) if one.mark(keys.Required)}
"""The keys that a job must have, each with what to write otherwise."""


def json_schema(of: str) -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of a job's file ("job") or a policy ("policy").

    It says what each key may hold by itself; what keys must be to one another only the loader checks.
    """
    if of == "policy":
        schema = object_schema(POLICY)
    else:
        # The command may also be given on the command line.
        schema = object_schema(JOB, REQUIRED.keys() - {"workers.command"})
        for name in NOT_EMPTY:
            schema["properties"][name]["minProperties"] = 1
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ft-supervisor {'policy' if of == 'policy' else 'job.yaml'}",
        **schema,
    }
