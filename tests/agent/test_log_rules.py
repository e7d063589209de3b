"""Patterns that match a worker's last output."""

import time

from ft_supervisor.agent.log_rules import matching
from ft_supervisor.core.protocol.settings import Match, Rule


def rules(*patterns: str) -> list[Rule]:
    return [Rule(match=Match(log=pattern)) for pattern in patterns]


def test_the_indices_of_those_that_match() -> None:
    tail = b"step 7\nCUDA error: uncorrectable ECC error\nbye\n"
    assert matching(rules("ECC", "NCCL", "", r"^CUDA.*error$", r"^error$"), tail) == (0, 3)
    assert matching([], tail) == ()
    assert matching(rules("", ""), tail) == ()
    assert matching(rules("ECC"), b"") == ()


def test_whatever_bytes_there_are() -> None:
    tail = bytes(range(256)) * 200 + b"\xc3" + "Speicher erschöpft\n".encode() + b"\x00\xff"
    assert matching(rules("erschöpft", "^nothing$", "\x00"), tail) == (0, 2)


def test_no_pattern_takes_for_ever() -> None:
    tail = b"a" * (64 << 10)
    began = time.monotonic()
    assert matching(rules("(a*)*b", "(a|a)*$b", "(.*)(.*)(.*)(.*)x"), tail) == ()
    assert time.monotonic() - began < 30  # a backtracking engine would take longer than the universe is old


def test_a_pattern_that_does_not_compile_matches_nothing() -> None:
    assert matching(rules("(", "ok", r"(?=x)", "\udc80"), b"it is ( ok x\n") == (1,)
