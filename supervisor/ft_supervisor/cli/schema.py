"""`ft-supervisor schema`: a schema, with which editors check a file while one types."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from ft_supervisor import config as configuration


class SchemaKind(StrEnum):
    """The kind of file that the schema describes."""

    JOB = "job"
    POLICY = "policy"


def schema(of: Annotated[SchemaKind, typer.Argument(help="Of a job's file or of a policy.")] = SchemaKind.JOB) -> None:
    """Prints the JSON Schema of job.yaml or of a policy.

    It describes each key by itself. `ft-supervisor validate` also checks how keys fit one another.

    \b
    Examples:
      ft-supervisor schema > ft-job.schema.json
      ft-supervisor schema policy > ft-policy.schema.json

    \b
    Editors with the YAML language server then take this as a file's first line:
      # yaml-language-server: $schema=ft-job.schema.json
    """
    typer.echo(json.dumps(configuration.json_schema(of.value), indent=2))
