"""Compares the expansion with tables taken from Slurm, and with ClusterShell as sets."""

import time

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ft_slurm.errors import NodeListError
from ft_slurm.nodelist import expand

# A busy machine is no failure.
UNTIMED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
ISSUE_LIST = "n[0-3,7],gpu-[001-100]x,rack[1-2]node[01-16],b[1-2],a[1-2]"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n0", "n0"),
        ("n0,n1", "n0 n1"),
        ("b[1-2],a[1-2]", "b1 b2 a1 a2"),
        ("n[3,1]", "n3 n1"),
        ("n[1,1],n1", "n1 n1 n1"),
        ("n[08-10]", "n08 n09 n10"),
        ("n[8-010]", "n8 n9 n10"),
        ("n[0-1]x", "n0x n1x"),
        ("[1-2]", "1 2"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        # Measured: the last bracket varies fastest, then the first, then the second.
        ("a[0-1]b[0-1]c[0-1]", "a0b0c0 a0b0c1 a1b0c0 a1b0c1 a0b1c0 a0b1c1 a1b1c0 a1b1c1"),
        ("a[1-2][3-4]z", "a13z a14z a23z a24z"),
        (" n1,\tn2,,n3\n", "n1 n2 n3"),
        ("node-1.rack_2.example", "node-1.rack_2.example"),
    ],
)
def test_order_and_padding(expression: str, names: str) -> None:
    assert expand(expression) == tuple(names.split())


def test_the_list_of_every_syntax() -> None:
    names = expand(ISSUE_LIST)
    assert len(names) == 5 + 100 + 32 + 2 + 2
    assert names[:6] == ("n0", "n1", "n2", "n3", "n7", "gpu-001x")
    assert names[104:106] == ("gpu-100x", "rack1node01")
    assert names[120:122] == ("rack1node16", "rack2node01")
    assert names[-4:] == ("b1", "b2", "a1", "a2")
    assert set(names) == set(NodeSet(ISSUE_LIST))


def test_ten_thousand_nodes_in_order_and_quickly() -> None:
    began = time.process_time()
    names = expand("z[00001-05000],r[1-5]n[0001-1000]")
    assert time.process_time() - began < 1
    assert len(set(names)) == 10_000
    assert names[0] == "z00001"
    assert names[4999:5001] == ("z05000", "r1n0001")
    assert names[-1] == "r5n1000"
    assert set(names) == set(NodeSet("z[00001-05000],r[1-5]n[0001-1000]"))


@pytest.mark.parametrize(
    ("expression", "position", "problem"),
    [
        ("", 0, "no names"),
        (" , ", 3, "no names"),
        ("n[0-3", 1, "never closed"),
        ("n[", 2, "expected a number, found the end"),
        ("n[]", 2, "expected a number, found ']'"),
        ("n[1,]", 4, "expected a number"),
        ("n[5-]", 4, "expected a number"),
        ("n[-5]", 2, "expected a number"),
        ("a,n[1--3]", 6, "expected a number"),
        ("n[1x3]", 3, "expected ',' or ']', found 'x'"),
        ("n[[1]]", 2, "expected a number"),
        ("n[3-1]", 2, "range 3-1 runs backwards"),
        ("n1]", 2, "unexpected ']'"),
        ("n{1..3}", 1, "unexpected '{'"),
        ("n1\x00", 2, "unexpected '\\x00'"),
        ("n[٣]", 2, "expected a number"),
        ("ok,n[1-100001]", 3, "more than 100000 names"),
        ("n[1-99999],m[1-2]", 11, "more than 100000 names"),
        ("a[0-999]b[0-999]c[0-999]", 0, "more than 100000 names"),
        ("n[0-999999999999999999]", 0, "more than 100000 names"),
        ("n[" + "9" * 5000 + "]", 2, "more than 18 digits"),
        ("n" * 256, 0, "longer than 255"),
    ],
)
def test_errors_name_the_position(expression: str, position: int, problem: str) -> None:
    with pytest.raises(NodeListError) as caught:
        expand(expression)
    assert caught.value.position == position
    assert problem in str(caught.value)
    assert f"position {position}" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_limit_is_exact() -> None:
    assert len(expand("n[1-10]", limit=10)) == 10
    with pytest.raises(NodeListError, match="more than 9 names"):
        expand("n[1-10]", limit=9)


names = st.from_regex(r"[a-z]{1,3}(-[a-z])?[0-9]{1,4}(x|-ib0|n[0-9]{1,2})?", fullmatch=True)


@UNTIMED
@given(st.lists(names, min_size=1, max_size=60))
def test_plain_names_are_what_they_were_in_the_order_they_had(written: list[str]) -> None:
    assert expand(",".join(written)) == tuple(written)


@UNTIMED
@given(st.sets(names, min_size=1, max_size=60))
def test_what_clustershell_folds_expands_to_the_same_set(written: set[str]) -> None:
    folded = str(NodeSet.fromlist(sorted(written)))
    expanded = expand(folded)
    assert set(expanded) == written
    assert len(expanded) == len(written)


ranges = st.tuples(st.integers(0, 40), st.integers(0, 6), st.integers(1, 4)).map(
    lambda r: f"{r[0]:0{r[2]}d}-{r[0] + r[1]:0{r[2]}d}" if r[1] else f"{r[0]:0{r[2]}d}"
)
bracket = st.lists(ranges, min_size=1, max_size=3).map(lambda r: f"[{','.join(r)}]")
term = st.lists(st.tuples(st.sampled_from(["a", "rack", "-n", ".b"]), bracket), min_size=1, max_size=3).map(
    lambda parts: "".join(text + numbers for text, numbers in parts)
)


@UNTIMED
@given(st.lists(st.tuples(term, st.sampled_from(["", "x", "-ib"])).map("".join), min_size=1, max_size=3))
def test_brackets_stand_for_what_clustershell_says(terms: list[str]) -> None:
    expanded = expand(",".join(terms))
    assert set(expanded) == set(NodeSet(",".join(terms)))
    assert expanded == tuple(name for one in terms for name in expand(one))


@UNTIMED
@given(st.text(alphabet="na[]{}0123456789-,. x\n", max_size=30))
def test_any_text_is_expanded_or_refused_with_a_position_inside_it(text: str) -> None:
    try:
        assert all(name and not set(name) & set("[], \n") for name in expand(text, limit=1000))
    except NodeListError as error:
        assert 0 <= error.position <= len(text)
