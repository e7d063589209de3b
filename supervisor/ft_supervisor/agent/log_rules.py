"""Finds the failure rules that a worker's last lines match.

RE2 takes time linear in the text for every pattern, so that no pattern and no output stops the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import re2

from ft_supervisor.core.protocol.settings import Rule
from ft_supervisor.process.log import log


def matching(rules: Sequence[Rule], tail: bytes) -> tuple[int, ...]:
    """Return the indices of those `rules` whose log pattern is found in `tail`. It is decoded as UTF-8, invalid bytes
    replaced.

    ^ and $ match at every line's ends.
    """
    if not any(rule.match.log for rule in rules):
        return ()
    text = tail.decode(errors="replace")
    return tuple(index for index, rule in enumerate(rules) if rule.match.log and _found(rule.match.log, text))


def _found(pattern: str, text: str) -> bool:
    compiled = _compile(pattern)
    return compiled is not None and compiled.search(text) is not None


@cache
def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False  # it would write to our stderr in its own format
    try:
        return re2.compile(f"(?m){pattern}", options)
    except (
        re2.error,
        UnicodeError,
    ) as error:  # loading the configuration refuses such a pattern; a failure's report must not fail for it
        log("bad_pattern", "warning", pattern=pattern, error=error)
        return None
