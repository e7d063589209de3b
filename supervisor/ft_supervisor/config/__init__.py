"""Merges job.yaml, the cluster's policy and the environment into one frozen `JobConfig`.

Each key is declared by a field, and its built-in value is that field's default, which is written there alone:

    timeouts.*                          core.protocol.model.Timeouts
    what else the machines go by        core.protocol.settings; the built-in rule of `failures` is ANY_FAILURE
    all others                          config.model

Reads files and the environment that it is given; starts nothing, changes nothing. Imports no torch and no pydantic: the
daemon, which must stay small, loads its configuration here.
"""

from ft_supervisor.config.canonical import differs
from ft_supervisor.config.environment import misspelt
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.merge import is_job, load, load_policy
from ft_supervisor.config.model import Domain, JobConfig, Network
from ft_supervisor.config.schema import json_schema

__all__ = [
    "ConfigError",
    "Domain",
    "JobConfig",
    "Network",
    "differs",
    "is_job",
    "json_schema",
    "load",
    "load_policy",
    "misspelt",
]
