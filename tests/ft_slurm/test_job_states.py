"""Tests the table of states: it is complete by Slurm's own headers, and gives UNKNOWN for all else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ft_slurm.fake_slurm import RECORDED

from ft_slurm import sacct_text, scontrol_text, values
from ft_slurm.job_states import BASE_STATES, STATES, Meaning, find
from ft_slurm.records import HIDDEN
from slurm_lab.lab import ENDED

# slurm_protocol_defs.c of 22.05.8, 24.11.5, 25.11.7 and 26.05.3, job_state_string_compact(): in the order in which they
# win.
SQUEUE_FLAGS = {
    "COMPLETING": "CG", "STAGE_OUT": "SO", "CONFIGURING": "CF", "RESIZING": "RS", "REQUEUED": "RQ",
    "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "SPECIAL_EXIT": "SE", "STOPPED": "ST", "REVOKED": "RV",
    "RESV_DEL_HOLD": "RD", "SIGNALING": "SI",
}  # fmt: skip
SQUEUE_BASE = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
}  # fmt: skip
# parsers.c of data_parser v0.0.42 to v0.0.45: JSON has these as well; 22.05's slurm.h had UPDATE_DB. Of them
# job_state_string() has EXPEDITING, since 25.11. (slurm.h's JOB_GETENV_FAILED is never in a job's state.)
WITHOUT_CODE = {"LAUNCH_FAILED", "UPDATE_DB", "RECONFIG_FAIL", "POWER_UP_NODE", "EXPEDITING"}


def test_all_are_there_with_squeues_codes() -> None:
    assert {name: state.code for name, state in STATES.items() if state.code} == SQUEUE_BASE | SQUEUE_FLAGS
    assert {name for name, state in STATES.items() if not state.code} == WITHOUT_CODE
    assert {name for name, state in STATES.items() if not state.flag} == BASE_STATES == SQUEUE_BASE.keys()


def test_each_says_what_it_means_in_one_line() -> None:
    for state in STATES.values():
        assert state.about and len(state.about) < 80 and "\n" not in state.about
        assert state.beneath in ("", "RUNNING", "PENDING")
        assert not (state.beneath and not state.flag)
    base = [STATES[name] for name in BASE_STATES]
    assert {Meaning.UNKNOWN, Meaning.PART} & {state.means for state in base} == set()
    assert {state.name for state in base if not state.over} == {"PENDING", "RUNNING", "SUSPENDED"}
    assert [state.name for state in base if state.means is Meaning.SUCCESS] == ["COMPLETED"]
    assert not [state.name for state in STATES.values() if state.flag and state.over]


@pytest.mark.parametrize(
    ("word", "name", "means"),
    [
        ("CANCELLED by 1000", "CANCELLED", Meaning.CANCELLED),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", Meaning.FAILED),
        ("CANCELLED+", "CANCELLED", Meaning.CANCELLED),
        ("RE+", "RE+", Meaning.UNKNOWN),
        ("HIBERNATED", "HIBERNATED", Meaning.UNKNOWN),
        ("?", "?", Meaning.UNKNOWN),
        ("", "", Meaning.UNKNOWN),
        ("X" * 500, "X" * 40, Meaning.UNKNOWN),
    ],
)
def test_what_a_word_of_saccts_means(word: str, name: str, means: Meaning) -> None:
    state = find(word)
    assert (state.name, state.means) == (name, means)
    assert state.over is (means in (Meaning.CANCELLED, Meaning.FAILED))


def test_every_state_that_was_recorded_is_known() -> None:
    words = {
        record.state for path in RECORDED.rglob("sacct-*.txt") for record in sacct_text.records(path.read_text(), 4242)
    }
    assert len(words) > 5
    assert {word for word in words if find(word).means is Meaning.UNKNOWN} == set()


@pytest.mark.parametrize("name", STATES)
def test_one_word_of_text_becomes_base_state_and_flags(name: str) -> None:
    state = STATES[name]
    if state.flag:
        assert values.job_state(name) == (state.beneath or HIDDEN, frozenset({name}))
    else:
        assert values.job_state(name) == (name, frozenset())


def test_a_word_that_nobody_knows_hides_what_is_beneath() -> None:
    assert values.job_state("HIBERNATED") == (HIDDEN, frozenset({"HIBERNATED"}))


@pytest.mark.parametrize("name", sorted({"COMPLETING", *BASE_STATES} - {"PENDING", "RUNNING", "SUSPENDED"}))
def test_a_step_in_any_of_these_states_is_over(name: str) -> None:
    assert scontrol_text.step_is_over(name)


@pytest.mark.parametrize("word", ["RUNNING", "PENDING", "SUSPENDED", "SIGNALING", "HIBERNATED", ""])
def test_a_step_of_which_nobody_knows_better_runs(word: str) -> None:
    assert not scontrol_text.step_is_over(word)


def test_there_is_no_second_table() -> None:
    over = {name for name in BASE_STATES if STATES[name].over}
    # ending.py finds the reason of a job's end, for which TIMEOUT and PREEMPTED differ.
    assert {path.name for path in sources() if len(over & set(texts(path))) > 2} == {"job_states.py", "ending.py"}
    # The lab needs nothing but Python, so it has its own.
    assert over | {"REVOKED"} == ENDED


def sources() -> Iterator[Path]:
    repository = Path(__file__).parents[2]
    for folder in ("slurm/ft_slurm", "supervisor/ft_supervisor"):
        yield from (repository / folder).rglob("*.py")


def texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
