"""Tests that every message and order survives its way through JSON, and that all other input is refused."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.making import Maker

from ft_supervisor.core.protocol.codec import MAX_BYTES, CodecError, decode, encode, from_plain, to_plain
from ft_supervisor.core.protocol.ledger import Ledger, Spent
from ft_supervisor.core.protocol.messages import TO_AGENT, TO_COORDINATOR, Members, Register, Run, Stop, WorkersFailed
from ft_supervisor.core.protocol.model import Accepted, Cycle, Failure, Memory, Node, Outcome, Roster, Verdict
from ft_supervisor.core.protocol.orders import ORDERS, Done, Terminate

ALL = TO_COORDINATOR + TO_AGENT + ORDERS
NO_LIMIT = 2**30
STOP = b'{"type":"Stop","term":1,"cycle":{"term":1,"n":2},"group":"0-3","grace":2.5}'


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_message_comes_back(kind: type) -> None:
    maker = Maker(Random(kind.__name__))
    for _ in range(200):
        message = maker.value(kind)
        data = encode(message, NO_LIMIT)
        assert b"\n" not in data
        assert decode(data, ALL, NO_LIMIT) == message


def test_a_text_that_is_no_unicode_comes_back() -> None:
    """os.fsdecode makes such text of an argument or a path."""
    order = Terminate("/data/\udcff")
    assert decode(encode(order), ORDERS) == order


def test_names_are_unique() -> None:
    assert len({kind.__name__ for kind in ALL}) == len(ALL)


def test_a_message_looks_like_this() -> None:
    assert encode(Stop(1, Cycle(1, 2), "0-3", 2.5)) == STOP
    assert decode(STOP, TO_AGENT) == Stop(1, Cycle(1, 2), "0-3", 2.5)
    assert json.loads(encode(Done(0, Verdict(Outcome.SUCCESS, "r"), "x"))) == {
        "type": "Done",
        "code": 0,
        "verdict": {"outcome": "success", "reason": "r", "again": "open", "ending": "unknown"},
        "reason": "x",
    }


def test_nested_parts_come_back_as_what_they_were() -> None:
    failure = Failure(1, 2, signal="SIGKILL", time=1.5)
    message = WorkersFailed(1, 2, 3, Cycle(4, 5), (failure, failure))
    assert decode(encode(message), TO_COORDINATOR) == message
    verdict = Verdict(Outcome.CANCELLED, "by hand")
    memory = Memory(
        promise=4,
        roster=Roster(4, 2, "0-2,7", "0-7"),
        ledger=Ledger(3, 2, (Spent(0, 2, (1.5,), ((1, 2),)),), 7, 1, 2, "3"),
        newest=Cycle(1, 1),
        group="0,2",
        failures=(failure,),
        accepted=Accepted(3, verdict),
        verdict=verdict,
    )
    assert from_plain(json.loads(json.dumps(to_plain(memory))), Memory) == memory
    assert from_plain(1, float) == 1.0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (STOP.decode().encode("utf-16"), "not JSON"),
        (b"1", "not an object with a type"),
        (b'["Stop"]', "not an object with a type"),
        (b'{"term":1}', "not an object with a type"),
        (b'{"type":1}', "not an object with a type"),
        (b'{"type":"Nothing"}', "unknown type 'Nothing'"),
        (b'{"type":"Stop","term":1,"group":"","grace":1}', "Stop: fields missing or unknown: 'cycle'"),
        (STOP[:-1] + b',"more":1}', "Stop: fields missing or unknown: 'more'"),
        (STOP.replace(b'"term":1,"cycle"', b'"term":true,"cycle"'), "Stop.term: int expected, not bool"),
        (STOP.replace(b'"term":1,"cycle"', b'"term":1.0,"cycle"'), "Stop.term: int expected, not float"),
        (STOP.replace(b'"n":2', b'"n":"2"'), "Stop.cycle.n: int expected, not str"),
        (STOP.replace(b'{"term":1,"n":2}', b"[1,2]"), "Stop.cycle: object expected, not list"),
        (STOP.replace(b'{"term":1,"n":2}', b"null"), "Stop.cycle: object expected, not NoneType"),
        (
            b'{"type":"Close","term":1,"verdict":{"outcome":"great","reason":"","again":"","ending":""}}',
            "unknown Outcome",
        ),
        (
            b'{"type":"Close","term":1,"verdict":{"outcome":[],"reason":"","again":"","ending":""}}',
            "unknown Outcome",
        ),
    ],
)
def test_the_error_is_one_line(data: bytes, why: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(data, TO_AGENT)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (b"1" + b"0" * 400, "not within 0 and"),
        (b"-1", "not within 0 and"),
        (b"NaN", "not within 0 and"),
        (b"Infinity", "not within 0 and"),
        (b"1e999", "not within 0 and"),
        (b"1e9", "not within 0 and"),
        (b"9" * 5000, "not JSON"),
        (b"true", "float expected, not bool"),
    ],
)
def test_an_impossible_number_is_refused(number: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        decode(STOP.replace(b"2.5", number), TO_AGENT)


@pytest.mark.parametrize("number", [b"9007199254740993", b"-1", b"1" + b"0" * 400])
def test_an_integer_has_bounds(number: bytes) -> None:
    with pytest.raises(CodecError, match=r"Stop\.cycle\.n: not within"):
        decode(STOP.replace(b'"n":2', b'"n":' + number), TO_AGENT)
    assert from_plain(2**53, int) == 2**53
    with pytest.raises(CodecError):
        from_plain(2**53 + 1, int)
    with pytest.raises(CodecError):
        from_plain(10**400, float)


@pytest.mark.parametrize("ranks", ["x", "1-", "0-999999", "3;4", "-1"])
def test_text_that_is_no_list_of_ranks_is_refused(ranks: str) -> None:
    data = encode(Members(1, Roster(1, 1, "0-2"))).replace(b"0-2", ranks.encode())
    with pytest.raises(CodecError, match=r"Members\.roster: .*ranks"):
        decode(data, TO_AGENT)


def test_only_the_types_asked_for_are_taken() -> None:
    with pytest.raises(CodecError, match="unknown type 'Stop'"):
        decode(STOP, TO_COORDINATOR)


def test_too_long_messages_are_neither_sent_nor_read() -> None:
    message = Terminate("x" * MAX_BYTES)
    with pytest.raises(CodecError, match=r"Terminate of \d+ bytes"):
        encode(message)
    data = encode(message, NO_LIMIT)
    with pytest.raises(CodecError, match="are allowed"):
        decode(data, ORDERS)
    assert decode(data, ORDERS, NO_LIMIT) == message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_random_json_raises_only_codec_errors(value: object) -> None:
    for kind in (Register, Run, Node):
        data = {"type": kind.__name__, **value} if isinstance(value, dict) else value
        with pytest.raises(CodecError):
            decode(json.dumps(data).encode(), ALL)


@given(st.binary())
def test_random_bytes_raise_only_codec_errors(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data, ALL)
