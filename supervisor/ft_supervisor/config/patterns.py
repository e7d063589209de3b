"""Compiles the configuration's regular expressions with RE2, which takes time linear in the text for any expression.

So no policy can keep a node busy without end. What RE2 leaves out for that, back references and look-around
(https://github.com/google/re2/wiki/Syntax), is refused.
"""

import re
from typing import Any

from ft_supervisor.config.scalars import text
from ft_supervisor.config.validator import Validator
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol import keys

MAX_EXPRESSION = 500
MAX_MEMORY = 1 << 20
"""Bytes for a compiled expression: some 10,000 instructions. Counted repetitions of large classes need more."""
_BEYOND_RE2 = re.compile(r"\(\?(?:<?[=!]|>|\(|P=)|\\[1-9]|\\k|[*+?}]\+")


class BadExpression(Exception):
    """RE2 cannot compile an expression; `str()` says why."""


def compiled(expression: str) -> Any:
    """Compiles the expression to an object of `re2`, with search() and groups; raises `BadExpression`."""
    import re2  # here: it costs a daemon 2.6 MB, and many jobs have no expression

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    options.max_mem = MAX_MEMORY
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeError) as error:
        why = error.args[0]
        raise BadExpression(why.decode(errors="replace") if isinstance(why, bytes) else str(error)) from None


def regular_expression(spec: keys.Expression) -> Validator:
    """An expression that RE2 can compile."""
    plain = text(keys.Text("a regular expression", most=MAX_EXPRESSION))

    def check(value: Value, key: str) -> str:
        expression: str = plain(value, key)
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
        if spec.groups is not None and found != spec.groups:
            right = "it must have exactly one, the domain: (rack[0-9]+)-.*"
            raise value.error(key, f"{value.shown()} has {found} groups", right)
        return expression

    return Validator(check, {"type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION})
