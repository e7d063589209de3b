"""Regular expressions of the configuration are RE2's: they take time linear in the text, whatever the expression.

So nothing that a policy holds can keep a node busy without end. What RE2 leaves out for that, back references and
look-around (https://github.com/google/re2/wiki/Syntax), is refused here.
"""

import re
from typing import Any

from ft_supervisor.config.kind import Kind
from ft_supervisor.config.values import text
from ft_supervisor.config.yamltree import Value

MAX_EXPRESSION = 500
MAX_MEMORY = 1 << 20
"""Bytes for a compiled expression: some 10,000 instructions. Counted repetitions of large classes need more."""
_BEYOND_RE2 = re.compile(r"\(\?(?:<?[=!]|>|\(|P=)|\\[1-9]|\\k|[*+?}]\+")


class BadExpression(Exception):
    """RE2 cannot compile an expression; `str()` says why."""


def compiled(expression: str) -> Any:
    """The expression as an object of `re2`, with search() and groups; raises `BadExpression`."""
    import re2  # here: it costs a daemon 2.6 MB, and many jobs have no expression

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    options.max_mem = MAX_MEMORY
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeError) as error:
        why = error.args[0]
        raise BadExpression(why.decode(errors="replace") if isinstance(why, bytes) else str(error)) from None


def regular_expression(groups: int | None = None) -> Kind:
    """An expression that RE2 can compile; `groups`: with exactly so many groups."""
    kind = text("a regular expression", most=MAX_EXPRESSION)

    def check(value: Value, key: str) -> str:
        expression: str = kind(value, key)
        try:
            found: int = compiled(expression).groups
        except BadExpression as error:
            right = "see RE2's syntax"
            if _BEYOND_RE2.search(expression):
                right = (
                    "back references, look-around, atomic groups and possessive repeats are not in RE2, "
                    "which never backtracks: write it without"
                )
            raise value.error(key, f"{value.shown()} is no regular expression: {error}", right) from None
        if groups is not None and found != groups:
            right = "it must have exactly one, the domain: (rack[0-9]+)-.*"
            raise value.error(key, f"{value.shown()} has {found} groups", right)
        return expression

    return Kind(check, {"type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION})
