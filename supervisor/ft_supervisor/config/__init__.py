"""Configuration: job.yaml and the cluster's policy, merged into one frozen `JobConfig`.

Reads files and the environment that it is given; starts nothing, changes nothing. Imports no torch and
no pydantic: the daemon, which is to stay small, loads its configuration here.
"""

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.merge import load
from ft_supervisor.config.model import Domain, JobConfig, Network

__all__ = ["ConfigError", "Domain", "JobConfig", "Network", "load"]
