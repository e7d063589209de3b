"""Every key with values that it may not hold, and the exact words: refused.txt has them."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.config.site import JOB, SHIPPED, Site

from ft_supervisor.config import json_schema, yamltree
from ft_supervisor.config.schema import JOB as KEYS
from ft_supervisor.config.yamltree import Value


def cases() -> list[tuple[str, str, str]]:
    """(YAML, -> or =>, messages) of each."""
    blocks = (Path(__file__).parent / "refused.txt").read_text().strip().split("\n\n")[1:]
    return [_case(block) for block in blocks]


def _case(block: str) -> tuple[str, str, str]:
    written, *answers = block.split("\n")
    arrow = answers[0].split()[0]
    return written, arrow, "\n".join(answer.strip().removeprefix(f"{arrow} ") for answer in answers)


CASES = cases()


def whole(written: str) -> str:
    return ("workers: {command: [x]}\n" if written.startswith("nodes:") else JOB) + written


def plain(value: Value) -> Any:
    """The tree as a schema's validator takes it."""
    if isinstance(value.data, dict):
        return {name: plain(item) for name, item in value.data.items()}
    if isinstance(value.data, list):
        return [plain(item) for item in value.data]
    return value.data


def validator(of: str) -> Any:
    schema = json_schema(of)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(("written", "arrow", "message"), CASES, ids=[f"{at}" for at in range(len(CASES))])
def test_the_loader_refuses(site: Site, written: str, arrow: str, message: str) -> None:
    assert site.refused(whole(written)) == message


def test_the_schema_refuses_what_needs_no_second_key(tmp_path: Path) -> None:
    schema, file = validator("job"), tmp_path / "job.yaml"
    refused = []
    for written, arrow, _ in CASES:
        file.write_text(whole(written))
        assert schema.is_valid(plain(yamltree.read(file))) == (arrow == "=>"), written
        refused.append(arrow == "->")
    assert refused.count(True) > 60


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schema_takes_the_policies(path: Path) -> None:
    validator("policy").validate(plain(yamltree.read(path)))


@pytest.mark.parametrize("path", sorted(SHIPPED.parent.glob("examples/*/job.yaml")), ids=lambda path: path.parent.name)
def test_the_schema_takes_the_examples(path: Path) -> None:
    validator("job").validate(plain(yamltree.read(path)))


def test_the_schema_knows_every_key_and_says_what_it_is() -> None:
    def described(schema: Any, key: str) -> None:
        for part in key.split("."):
            schema = schema["properties"][part]
        assert schema["description"].endswith("."), key

    for key in KEYS:
        described(json_schema("job"), key)
        if key.startswith("policy."):
            described(json_schema("policy"), key.removeprefix("policy."))
    assert "limits" in json_schema("policy")["properties"]
    assert "limits" not in json_schema("job")["properties"]["policy"]["properties"]
