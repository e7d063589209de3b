"""Quotes words so that they arrive unchanged: through bash, and through sbatch's own reading of #SBATCH lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]+", re.ASCII)


def bash(words: Sequence[str]) -> str:
    """Quote the words for bash. The result is one line, also for words with line breaks: sbatch refuses a script with
    \\r\\n in it."""
    return " ".join(map(_bash, words))


def _bash(word: str) -> str:
    if not _CONTROL.search(word):
        return shlex.quote(word)
    escaped = re.sub(r"[\\'\x00-\x1f\x7f]", lambda found: _escape(found[0]), word)
    return f"$'{escaped}'"


def _escape(character: str) -> str:
    return _ESCAPES.get(character) or f"\\x{ord(character):02x}"


def directive(word: str) -> str | None:
    """Quote a word for an #SBATCH line as sbatch reads it: in double quotes, in which a backslash takes away the
    meaning of the character after it (measured on 22.05 and 24.11). Returns None for a word that no line can hold."""
    if "\n" in word:
        return None
    return word if _PLAIN.fullmatch(word) else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
