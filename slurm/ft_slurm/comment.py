"""A part of a job's comment that is ours, beside whatever the user, or a site's tools, wrote there."""

import re

MARK = "ft"
LIMIT = 1024
"""Bytes of a comment (docs/internals/slurm.md, Accounting)."""


def with_part(comment: str, mark: str, text: str, limit: int = LIMIT) -> str:
    """The comment with `[mark: text]` in the place of our former part, else after what is there.

    `text` becomes one line without brackets, cut so that all fits in `limit` bytes; where not even an empty part fits,
    the comment stays as it is, as it does when it could not be decoded. Without text our part is taken away. What
    others wrote is never cut.
    """
    if "\N{REPLACEMENT CHARACTER}" in comment:
        return comment
    found = _find(comment, mark)
    if found is None and not text:
        return comment
    before, after = (comment[: found.start()], comment[found.end() :]) if found else (comment, "")
    if not text:
        return " ".join(filter(None, (before.rstrip(), after.lstrip())))
    gap = " " if before and not before[-1].isspace() else ""
    room = limit - len(f"{before}{gap}[{mark}: ]{after}".encode(errors="replace"))
    if room < 0:
        return comment
    plain = " ".join(text.split()).translate({ord("["): "(", ord("]"): ")", 0: None})
    return f"{before}{gap}[{mark}: {_cut(plain, room)}]{after}"


def has(comment: str, mark: str, head: str) -> bool:
    """Whether our part is there and says `head`: that alone, or that and more behind a comma."""
    text = part(comment, mark)
    return text == head or text.startswith(f"{head},")


def part(comment: str, mark: str) -> str:
    """Our part's text; empty when there is none."""
    found = _find(comment, mark)
    return found[1] if found else ""


def _find(comment: str, mark: str) -> re.Match[str] | None:
    return re.search(rf"\[{re.escape(mark)}: ([^\[\]]*)\]", comment)


def _cut(text: str, room: int) -> str:
    return text.encode(errors="replace")[:room].decode(errors="ignore")
