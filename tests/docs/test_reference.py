"""The pages that are made from the code are those of this code, and none of their sentences is missing."""

import re
from pathlib import Path

import pytest

from ft_docs import events, small_pages, states
from ft_docs.cli import REFERENCE, made, reference_path
from ft_docs.event_words import WORDS
from ft_supervisor.core.protocol.model import CONFIG_ERROR, EXIT_CODES, NEVER_AGAIN


@pytest.mark.parametrize("path", made(), ids=lambda path: path.name)
def test_is_up_to_date(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    assert written == made()[path], "run ./scripts/docs --reference and commit what it writes"


def test_every_table_of_states_is_drawn(repository: Path) -> None:
    core = repository / "supervisor/ft_supervisor/core"
    tables = {
        str(path.relative_to(core))
        for path in core.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"[A-Z]+: (Transitions\[|Mapping\[(\w+), Mapping\[\2, str\]\])", line)
    }
    assert tables == {machine.module for machine in states.MACHINES}


def test_there_is_no_other_page() -> None:
    assert {path.stem for path in reference_path("x").parent.iterdir()} == set(REFERENCE)


def test_every_event_of_the_log_has_a_sentence(repository: Path) -> None:
    found = {event.name for event in events.events(repository)}
    assert found >= {"cycle_started", "node_lost", "active", "gives_up", "job_left_running"}
    assert found == set(WORDS), "say in scripts/ft_docs/event_words.py what a new event means; remove what is gone"


def test_fields_that_are_passed_through_are_told(repository: Path) -> None:
    fields = {event.name: set(event.fields) for event in events.events(repository)}
    assert {"cycle", "group_rank", "group_world_size"} <= fields["active"]
    assert "group_rank" not in fields["standby"]
    assert {"port", "error"} <= fields["metrics_not_served"]


def test_an_event_without_a_name_of_its_own_is_noticed(tmp_path: Path) -> None:
    for folder in ("supervisor/ft_supervisor/agent", "slurm/ft_slurm"):
        (tmp_path / folder).mkdir(parents=True)
    source = tmp_path / "supervisor/ft_supervisor/agent/x.py"
    source.write_text('def f():\n    log("here", "warning", rank=3)\n')
    assert events.Event("here", "agent", ("warning",), ("rank",)) in events.events(tmp_path)
    source.write_text("def f(name):\n    log(name)\n")
    with pytest.raises(LookupError, match=r"x\.py:2"):
        events.events(tmp_path)


def test_every_key_of_the_store_has_a_sentence() -> None:
    assert set(small_pages.key_paths()) == set(small_pages.KEYS)


def test_every_exit_code_is_told() -> None:
    page = small_pages.exit_codes()
    for code in (*EXIT_CODES.values(), CONFIG_ERROR, NEVER_AGAIN):
        assert f"\n| {code} | " in page
