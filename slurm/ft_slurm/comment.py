"""A part of a job's comment that is ours, beside whatever the user, or a site's tools, wrote there."""

MARK = "ft"
LIMIT = 1024
"""Bytes of a comment (slurm-facts.md)."""


def with_part(comment: str, mark: str, text: str, limit: int = LIMIT) -> str:
    """The comment with `[mark: text]` in the place of our former part, else after what is there.

    `text` is one line without brackets afterwards, cut so that all fits in `limit` bytes; where not even an empty part
    fits, the comment stays as it is. Without text our part is taken away. What others wrote is never cut.
    """
    before, after = _around(comment, mark)
    if not text:
        return (
            " ".join(filter(None, (before.rstrip(), after.lstrip()))) if (before, after) != (comment, "") else comment
        )
    opening = f"[{mark}: "
    gap = " " if before and not before[-1].isspace() else ""
    room = limit - len(f"{before}{gap}{opening}]{after}".encode(errors="replace"))
    if room < 0:
        return comment
    plain = " ".join(text.split()).replace("[", "(").replace("]", ")")
    return f"{before}{gap}{opening}{_cut(plain, room)}]{after}"


def part(comment: str, mark: str) -> str:
    """Our part's text; empty when there is none."""
    before, after = _around(comment, mark)
    return comment[len(before) + len(f"[{mark}: ") : len(comment) - len(after) - 1] if before != comment else ""


def _around(comment: str, mark: str) -> tuple[str, str]:
    """What stands before our part, and after it; (comment, "") when it has none that is whole."""
    before, opening, rest = comment.partition(f"[{mark}: ")
    _, closing, after = rest.partition("]")
    return (before, after) if opening and closing else (comment, "")


def _cut(text: str, room: int) -> str:
    return text.encode(errors="replace")[:room].decode(errors="ignore")
