"""A key is one annotated field: its check, schema, default, canonical form, documentation and errors come from it."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import pytest
from tests.config.site import JOB, SHIPPED, Site

from ft_docs import configuration
from ft_supervisor.config import json_schema
from ft_supervisor.config.declared import Declared, build, declared, each_key, table
from ft_supervisor.config.defaults import built_in, hang
from ft_supervisor.config.environment import variable
from ft_supervisor.config.errors import ConfigError, Problems
from ft_supervisor.config.health import Disk, Gpu
from ft_supervisor.config.model import Domain, JobConfig
from ft_supervisor.config.schema import JOB_KEYS, KEYS, LIMITED, LIMITS
from ft_supervisor.config.validator import object_schema, read
from ft_supervisor.config.yamltree import read_variable
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.keys import Special
from ft_supervisor.core.protocol.settings import Backoff, Budget, Check, Health, Match, Placement, Pool, Rule, Settings

ALL = sorted(each_key(JobConfig), key=lambda found: found[0])
RECORDS = {
    "failures": Rule,
    "failures.match": Match,
    "spares.pools": Pool,
    "health.checks": Check,
    "health.disk": Disk,
    "health.gpu": Gpu,
    "topology.domain": Domain,
}
INSIDE = [(f"{at}.{key}", one) for at, cls in RECORDS.items() for key, one in each_key(cls)]


def names(found: list[tuple[str, Declared]]) -> list[str]:
    return [key for key, _ in found]


def test_there_is_no_key_but_the_declared_ones() -> None:
    assert sorted(KEYS.keys() - LIMITS.keys()) == names(ALL)
    assert len(ALL) > 50 and len(INSIDE) >= 35


@pytest.mark.parametrize(("key", "one"), ALL, ids=names(ALL))
def test_every_declared_key_is_in_schema_documentation_defaults_and_errors(site: Site, key: str, one: Declared) -> None:
    about = one.about
    job = key in JOB_KEYS
    schema: Any = json_schema("job" if job else "policy")
    for part in key.split("."):
        schema = schema["properties"][part]
    assert schema["description"] == about
    row = next(line for line in configuration.render().splitlines() if line.startswith(f"| `{key}` |"))
    assert about in row
    assert (key in built_in() | hang()) == (one.default is not dataclasses.MISSING and key != "cluster")
    written = key if job else f"policy.{key}"
    tree = "[{x: [1, {}]}]"  # no key holds such a thing
    for part in reversed(written.split(".")):
        tree = f"{{{part}: {tree}}}"
    assert any(line.startswith(f"job.yaml:1: {written}") for line in site.refused(tree).splitlines())
    lines = site.refused(JOB, {variable(key): "[{x: [1, {}]}]"}).splitlines()
    assert lines[0].startswith(f"environment: {variable(key)}: {key}")


@pytest.mark.parametrize(("key", "one"), INSIDE, ids=names(INSIDE))
def test_every_key_of_a_record_is_in_schema_and_documentation(key: str, one: Declared) -> None:
    top = next(name for name in sorted(KEYS, key=len, reverse=True) if key.startswith(f"{name}."))
    below = key.removeprefix(f"{top}.")
    assert one.about in json.dumps(KEYS[top].schema)
    page = configuration.render().partition(f"Keys inside `{top}`:")[2].partition("\n#")[0].partition("Keys inside")[0]
    assert f"| `{below}` | {one.about} |" in page


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_every_key_reaches_the_field_that_declares_it(site: Site, name: str) -> None:
    config = site.load(f"cluster: {name}\nhang: {{after: 7m}}\n{JOB}")

    def held(cls: type, value: Any, prefix: str = "") -> None:
        for one in declared(cls):
            got = getattr(value, one.field)
            if one.section is not None:
                held(one.kind, got, f"{prefix}{one.name}." if one.name else prefix)
            elif (key := prefix + one.name) not in ("cluster", "nodes.active", "health.disk", "workers.env"):
                assert KEYS[key].plain(got) == json.loads(config.policy)[key]

    held(JobConfig, config)


def test_every_special_value_is_of_some_key() -> None:
    used = {one.mark(Special) for _, one in [*ALL, *INSIDE]} - {None}
    assert used == set(Special)


def test_limits_are_the_keys_that_say_so() -> None:
    limited = {f"limits.{one.mark(keys.Limited).name}": key for key, one in ALL if one.mark(keys.Limited)}
    assert limited == LIMITED and limited["limits.interruption_grace"] == "interruption.grace"
    assert LIMITS.keys() - limited.keys() == {"limits.max_restarts"}


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Paint:
    """A section with one key of each kind."""

    dry: Annotated[float, keys.Duration(), "How long it dries."] = 90.0
    coats: Annotated[int | None, keys.Whole(1, 3), "How many there are."] = None
    colour: Annotated[Colour, "Which it is."] = Colour.RED
    gloss: Annotated[bool, keys.Name("finish"), keys.Words(("matt", "gloss")), "How it shines."] = False
    mixed: Annotated[tuple[Colour, ...], keys.OneOrMore(), "What is in it."] = ()
    maker: str = "not a key"


@dataclass(frozen=True)
class House:
    paint: Annotated[Paint, keys.Section()] = Paint()
    door: Annotated[Paint | None, keys.Section(always=False)] = None


def test_a_new_field_is_a_new_key_and_nothing_else_is_written() -> None:
    assert names(list(each_key(House)))[:5] == [
        "paint.dry",
        "paint.coats",
        "paint.colour",
        "paint.finish",
        "paint.mixed",
    ]
    written = "{paint: {dry: 2m, coats: 3, colour: green, finish: gloss, mixed: [red, green]}}"
    problems = Problems()
    got = read(read_variable("X", written), table(House), problems)
    problems.raise_all()
    values = {key: setting.value for key, setting in got.items()}
    assert build(House, values) == House(Paint(120.0, 3, Colour.GREEN, True, (Colour.RED, Colour.GREEN)))
    assert build(House, {"door.coats": 2}) == House(door=Paint(coats=2))
    assert {key: table(House)[key].plain(value) for key, value in values.items()} == {
        "paint.dry": "2m",
        "paint.coats": 3,
        "paint.colour": "green",
        "paint.finish": "gloss",
        "paint.mixed": ["red", "green"],
    }
    schema = object_schema(table(House))["properties"]["paint"]["properties"]
    assert schema["coats"] == {"type": "integer", "minimum": 1, "maximum": 3, "description": "How many there are."}
    assert schema["colour"] == {"enum": ["red", "green"], "description": "Which it is."}
    assert [one.default for _, one in each_key(House, built_in=True)] == [90.0, None, Colour.RED, False, ()]
    read(read_variable("X", "{paint: {dry: 2, coats: 4, colour: x, finish: y}}"), table(House), problems)
    with pytest.raises(ConfigError) as error:
        problems.raise_all()
    assert [line.split(": ")[2] for line in error.value.lines] == [
        "paint.dry",
        "paint.coats",
        "paint.colour",
        "paint.finish",
    ]


def test_a_field_that_is_no_key_is_so_on_purpose() -> None:
    silent = {}
    for cls in (JobConfig, Settings, *{one.kind for one in sections(JobConfig)}, *RECORDS.values(), Budget, Backoff):
        known = {one.field for one in declared(cls) if one.about or one.section}
        if rest := {field.name for field in dataclasses.fields(cls)} - known:
            silent[cls] = rest
    assert silent == {
        JobConfig: {"policy_note", "max_restarts", "sources", "policy"},
        Placement: {"least"},
        Health: {"min_free"},
        Rule: {"where"},
        Domain: {"nodes"},
    }


def sections(cls: type) -> Iterator[Declared]:
    for one in declared(cls):
        if one.section:
            yield one
            yield from sections(one.kind)
