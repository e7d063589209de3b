"""Tests that all events and actions of the machines come back from the journal unchanged."""

import inspect
import json
from dataclasses import is_dataclass
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.making import Maker

from ft_supervisor.core.protocol import actions, events, messages, orders
from ft_supervisor.core.protocol.codec import CodecError
from ft_supervisor.core.protocol.model import NO_PROMISE, Cycle, Job, Memory, Node, Outcome, Verdict
from ft_supervisor.journal.tagged import EVENTS, HIDDEN, KINDS, brief, dump, load, text

INTEGERS = st.integers(-(2**53), 2**53)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.none() | st.booleans() | INTEGERS | FLOATS | st.text() | st.sampled_from(Outcome)
ANYTHING |= st.builds(Cycle, st.integers(0, 2**53), st.integers(0, 2**53)) | st.tuples(st.text(), INTEGERS)
MODULES = [events, actions, orders, messages]


def own_types(module: ModuleType) -> list[type]:
    return [
        kind for _, kind in inspect.getmembers(module, inspect.isclass)
        if is_dataclass(kind) and kind.__module__ == module.__name__
    ]  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_type_is_forgotten(module: ModuleType) -> None:
    types = own_types(module)
    assert len(types) >= 7, "the types were not found"
    assert not [kind.__name__ for kind in types if KINDS.get(kind.__name__) is not kind]


def check(value: Any) -> None:
    """Check that the value comes back from each of its forms."""
    kind = type(value)
    for form in (dump, brief):
        line = text(form(value))
        assert "\n" not in line
        back = load(json.loads(line))
        assert type(back) is kind
        assert text(form(back)) == line  # and not ==: of secrets there is only the text
        if form is dump and kind not in (orders.Begin, events.Ordered, actions.Tell):
            assert back == value or "NaN" in line


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_type_comes_back(kind: type) -> None:
    maker = Maker(Random(kind.__name__))
    for _ in range(100):
        check(maker.value(kind))


@given(FLOATS)
def test_times_are_exact(now: float) -> None:
    back = load(json.loads(text(dump(events.Looked(now, 1, 2, 3)))))
    assert back.asked == now


def test_nested_types_are_told_apart() -> None:
    cycle = Cycle(1, 2)
    twins: list[Any] = [messages.Stopping(1, 2, 3, cycle), messages.WorkersSucceeded(1, 2, 3, cycle)]  # the same fields
    assert [load(json.loads(text(dump(events.Received(one))))).message for one in twins] == twins


def test_secrets_are_hidden_wherever_a_job_lies() -> None:
    job = Job("1.0.0", ("a",), ("a",), (1,), "/r", "/l", 1, 1, ("x",), env=(("TOKEN", "geheim"),), nonce="nonce-7")
    begin = orders.Begin(job, Node(0, "a", "a"), 1, Memory())
    for value in (begin, events.Ordered("agent", begin), actions.Tell(begin)):
        for line in (text(dump(value)), text(brief(value))):
            assert "geheim" not in line and "nonce-7" not in line
            assert line.count(HIDDEN) == 2 and "TOKEN" in line


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "None is none of"),
        ([], "None is none of"),
        ({"type": 1}, "1 is none of"),
        ({"type": ["Tick"]}, "is none of"),
        ({"type": "Nothing"}, "'Nothing' is none of"),
        ({"type": "Mail"}, "'Mail' is none of"),  # an action is no event
        ({"type": "Tick", "more": 1}, "Tick: fields missing or unknown: 'more'"),
        (["Tick", 1], "Tick: 0 fields expected, not 1"),
        (["Looked", 1.0, 2, None], "Looked: 4 fields expected, not 3"),
        (["Looked", 1.0, "2", None, 3], "int expected, not str"),
        ({"type": "Mailed", "message": {"type": "Register"}}, "Mailed: 'Register' is none of"),
        ({"type": "Mailed", "message": {"type": "Prepare", "term": True}}, "int expected, not bool"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(value: object, why: str) -> None:
    with pytest.raises(CodecError) as caught:
        load(value, EVENTS)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_of_ranks_is_checked() -> None:
    memory = dump(orders.Remember(Memory(promise=NO_PROMISE, verdict=Verdict(Outcome.SUCCESS, "r"))))
    memory["memory"]["roster"] = {"term": 1, "number": 1, "members": "9-", "former": ""}
    with pytest.raises(CodecError, match="no range of ranks"):
        load(memory)
