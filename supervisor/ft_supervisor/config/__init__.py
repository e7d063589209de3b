"""Merges job.yaml, the cluster's policy and the environment into one frozen `JobConfig`.

The keys are declared where their values are kept: in `core.protocol.settings`, `core.protocol.model.Timeouts` and
`config.model`.

Reads files and the environment that it is given; starts nothing, changes nothing. Imports no torch and no pydantic: the
daemon, which must stay small, loads its configuration here.
"""

from ft_supervisor.config.canonical import differs
from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.merge import is_job, load, load_policy
from ft_supervisor.config.model import Domain, JobConfig, Network
from ft_supervisor.config.schema import json_schema

__all__ = ["ConfigError", "Domain", "JobConfig", "Network", "differs", "is_job", "json_schema", "load", "load_policy"]
