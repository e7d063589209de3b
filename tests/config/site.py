"""A machine's configuration files in a folder of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ft_supervisor.config import ConfigError, JobConfig, load

JOB = "nodes: {active: 2}\nworkers: {command: [python, train.py]}\n"
SHIPPED = Path(__file__).parents[2] / "configs" / "clusters"


class Site:
    """`system` stands for /etc/ft-supervisor, `job` is the job's file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.system = root / "etc"
        self.job = root / "job.yaml"
        (self.system / "clusters").mkdir(parents=True)

    def load(self, text: str, environ: Mapping[str, str] | None = None, **more: Any) -> JobConfig:
        self.job.write_text(text)
        return load(self.job, environ=environ or {}, system=self.system, **more)

    def refused(self, text: str, environ: Mapping[str, str] | None = None, **more: Any) -> str:
        """The message, with the folder taken off."""
        with pytest.raises(ConfigError) as error:
            self.load(text, environ, **more)
        return str(error.value).replace(f"{self.root}/", "")

    def cluster(self, name: str, text: str, folder: str = "etc/clusters") -> Path:
        file = self.root / folder / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file
