"""Makes docs/reference/configuration.md from the declarations of the keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ft_docs.text import code, page, table
from ft_supervisor.config import defaults
from ft_supervisor.config.scalars import duration, path_template, size
from ft_supervisor.config.schema import JOB_KEYS, LIMITS, POLICY
from ft_supervisor.config.validator import Table
from ft_supervisor.core.protocol import keys as spec

Schema = Mapping[str, Any]

INTRO = """\
Every key of job.yaml and of a cluster's policy, with the values that it may have, and the built-in value. Keys are
written with dots here: `timeouts.join` is `join:` below `timeouts:`. A job writes the keys of a policy below `policy:`.
[For operators](../operators.md#policies-in-layers) describes how files are merged.

A *duration* needs its unit: `500ms`, `1.5s`, `10m`, `1h`, at most `168h`. A *size* does too: `100MiB`, `2GiB`. *Nodes*
are written as Slurm writes them: `n[1-4],m7`, or a list of such. Regular expressions are RE2's. `ft-supervisor schema`
prints the same as a JSON Schema for editors."""

_PATH = "a path, in which `{job_id}` is replaced"
_PATTERNS = {
    duration(spec.Duration()).schema["pattern"]: "a duration above 0",
    duration(spec.Duration(zero=True)).schema["pattern"]: "a duration",
    size().schema["pattern"]: "a size",
    path_template(spec.PathTemplate()).schema["pattern"]: _PATH,
    path_template(spec.PathTemplate(empty=True)).schema["pattern"]: f"{_PATH}, or nothing",
}
_NO_BUILT_IN = {"cluster": "`auto`", "nodes.active": "required", "workers.command": "required, here or after `--`"}
_HEAD = ("key", "what it is", "may be", "built-in")


def render() -> str:
    """Returns the whole page."""
    policy = {key: kind for key, kind in POLICY.items() if key not in LIMITS}
    return page(
        "Configuration",
        INTRO,
        "## In job.yaml alone",
        *_sections(JOB_KEYS),
        "## In a policy, and below `policy:` in job.yaml",
        *_sections(policy),
        "## In a policy alone",
        *_sections(LIMITS),
    )


def _sections(keys: Table) -> Iterator[str]:
    built_in = {**defaults.built_in(), **defaults.hang()}
    heads = dict.fromkeys(key.partition(".")[0] for key in keys)
    single = {head: keys[head] for head in heads if head in keys}
    groups: list[tuple[str, Table]] = [("", single)] if single else []
    groups += [
        (head, {key: kind for key, kind in keys.items() if key.startswith(f"{head}.")})
        for head in heads
        if head not in keys
    ]
    for head, group in groups:
        if head:
            yield f"### {head}"
        rows = []
        for key, kind in group.items():
            shown = _shown(kind.plain(built_in[key].value)) if key in built_in else _NO_BUILT_IN.get(key, "")
            rows.append((code(key), kind.schema["description"], words(kind.schema), shown))
        yield table(_HEAD, rows)
        for key, kind in group.items():
            if inner := list(_inside(kind.schema, "")):
                yield f"Keys inside {code(key)}:"
                yield table(_HEAD[:3], [(code(name), _about(schema), words(schema)) for name, schema in inner])


def _about(schema: Schema) -> str:
    return str(schema.get("description", ""))


def _inside(schema: Schema, prefix: str) -> Iterator[tuple[str, Schema]]:
    """Yields the keys of maps inside a value, with dots, in the order in which they are declared."""
    for name, part in schema.get("properties", {}).items():
        yield f"{prefix}{name}", part
        yield from _inside(part, f"{prefix}{name}.")
    if schema.get("type") == "array":
        yield from _inside(schema["items"], prefix)
    for part in schema.get("anyOf", ()):
        yield from _inside(part, prefix)


def words(schema: Schema) -> str:
    """Return for people which values the schema allows."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(words(part) for part in schema["anyOf"]))
    if "enum" in schema:
        return _choice([str(word) for word in schema["enum"] if word is not False])
    if "format" in schema:
        return "an IP address"
    match schema.get("type"):
        case "boolean":
            return "`true` or `false`"
        case "integer" | "number":
            return f"a number from {schema['minimum']} to {schema['maximum']}"
        case "array":
            return f"a list of {_many(words(schema['items']))}"
        case "object" if "properties" in schema:
            return f"a map of {', '.join(map(code, schema['properties']))}"
        case "object":
            return "a map of names to text"
    return _PATTERNS.get(schema.get("pattern", ""), "text")


def _choice(found: Sequence[str]) -> str:
    if len(found) > 10 and all(word.startswith("SIG") for word in found):
        return "a signal's name, such as `SIGTERM`" + ("" if "SIGKILL" in found else "; not `SIGKILL` or `SIGSTOP`")
    return " or ".join(map(code, found)) if len(found) < 3 else ", ".join(map(code, found))


def _many(one: str) -> str:
    return one.replace("a map of", "maps of", 1).replace("a number", "numbers", 1)


def _shown(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n").strip()
    return code(text.strip("'")) if text not in ("''", "null") else "nothing"
