"""Reads and writes our part of a job's comment, beside what the user or a site's tools wrote there."""

import re

MARK = "ft"
LIMIT = 1024
"""Bytes of a comment (docs/internals/slurm.md, Accounting)."""


def with_part(comment: str, mark: str, text: str, limit: int = LIMIT) -> str:
    """Return the comment with `[mark: text]` in the place of our former part, else after what is there.

    `text` becomes one line without brackets, cut so that all fits into `limit` bytes. The comment stays as it is when
    not even an empty part fits, and when it could not be decoded. An empty `text` removes our part. The rest of the
    comment is never cut.
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
    """Return whether our part is `head` alone, or `head` followed by a comma and more."""
    text = part(comment, mark)
    return text == head or text.startswith(f"{head},")


def part(comment: str, mark: str) -> str:
    """Return our part's text; "" when there is none."""
    found = _find(comment, mark)
    return found[1] if found else ""


def _find(comment: str, mark: str) -> re.Match[str] | None:
    return re.search(rf"\[{re.escape(mark)}: ([^\[\]]*)\]", comment)


def _cut(text: str, room: int) -> str:
    return text.encode(errors="replace")[:room].decode(errors="ignore")
