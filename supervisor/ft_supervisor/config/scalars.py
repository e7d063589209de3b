"""Checks plain values: text, numbers, words, durations, sizes, signals, paths."""

import difflib
import ipaddress
import re
import signal
import string
from collections.abc import Iterable
from enum import StrEnum

from ft_supervisor.config.validator import Validator
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.settings import AutoHang

MAX_SECONDS = 7 * 24 * 3600.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h)"
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?")
_SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"([0-9]{1,12})(B|KiB|MiB|GiB|TiB)"
_LONGEST_WORD = 60
ANY_TEXT = r"(?s).*"
SIGNALS = tuple(sorted(found.name for found in signal.Signals))


def text(spec: keys.Text) -> Validator:
    """Text of at most `spec.most` characters that matches `spec.pattern` as a whole."""
    what, pattern, most = spec.what, spec.pattern, spec.most
    shape = re.compile(pattern)

    def check(value: Value, key: str) -> str:
        if not isinstance(value.data, str):
            quoted = f': "{value.text}"' if value.text and len(value.text) <= 40 else ""
            right = f"it must be {what}; quote it{quoted}" if quoted else f"it must be {what}"
            if quoted and what == "text" and value.data is not None:
                right = f"quote it{quoted}"
            raise value.error(key, f"is {value.shown()}, not text", right)
        if not shape.fullmatch(value.data) or len(value.data) > most or "\0" in value.data:
            raise value.error(key, f"is {value.shown()}", f"it must be {what}")
        return value.data

    # Schemas' expressions are those of JavaScript, which has no (?s); \0 is left to the loader.
    shaped = {} if pattern == ANY_TEXT else {"pattern": f"^(?:{pattern})$"}
    return Validator(check, {"type": "string", "maxLength": most, **shaped})


def whole(spec: keys.Whole) -> Validator:
    """A whole number within the bounds; true and false are none."""
    least, most = spec.low, spec.high

    def check(value: Value, key: str) -> int:
        number = value.whole_number(key)
        if number is None or not least <= number <= most:
            raise value.error(key, f"is {value.shown()}", f"it must be a whole number from {least} to {most}")
        return number

    return Validator(check, {"type": "integer", "minimum": least, "maximum": most})


def fraction() -> Validator:
    """A number from 0 to 1."""

    def check(value: Value, key: str) -> float:
        if not isinstance(value.data, int | float) or isinstance(value.data, bool) or not 0 <= value.data <= 1:
            raise value.error(key, f"is {value.shown()}", "it must be a number from 0 to 1")
        return float(value.data)

    return Validator(check, {"type": "number", "minimum": 0, "maximum": 1})


def boolean() -> Validator:
    """true or false."""

    def check(value: Value, key: str) -> bool:
        if not isinstance(value.data, bool):
            raise value.error(key, f"is {value.shown()}", "it must be true or false")
        return value.data

    return Validator(check, {"type": "boolean"})


def choice(words: tuple[str, ...]) -> Validator:
    """One of the words."""

    def check(value: Value, key: str) -> str:
        if not isinstance(value.data, str) or value.data not in words:
            raise value.error(key, f"is {value.shown()}", f"it must be {' or '.join(words)}{meant(value, words)}")
        return value.data

    return Validator(check, {"enum": list(words)}, str)


def meant(value: Value, words: Iterable[str]) -> str:
    """Returns "; did you mean WORD?" for the word that is most like the value, "" if none is."""
    if not isinstance(value.data, str) or len(value.data) > _LONGEST_WORD:
        return ""
    near = difflib.get_close_matches(value.data.lower().replace("-", "_"), list(words), 1)
    return f"; did you mean {near[0]}?" if near else ""


def member(kind: type[StrEnum]) -> Validator:
    """One of an enum's words, as its member."""
    word = choice(tuple(one.value for one in kind))
    return Validator(lambda value, key: kind(word(value, key)), word.schema, str)


def either(words: tuple[str, ...]) -> Validator:
    """One of two words, as False and True."""
    word = choice(words)
    return Validator(lambda value, key: word(value, key) == words[1], word.schema, lambda got: words[got])


def word_or(spec: keys.WordOr) -> Validator:
    """One of the words, or a whole number within the bounds."""
    words, least, most = spec.words, spec.low, spec.high

    def check(value: Value, key: str) -> str | int:
        data = value.data
        if isinstance(data, str) and data in words:
            return data
        if (number := value.whole_number(key)) is not None and least <= number <= most:
            return number
        right = f"it must be {' or '.join(words)} or a whole number from {least} to {most}"
        raise value.error(key, f"is {value.shown()}", right + meant(value, words))

    return Validator(check, {"anyOf": [{"enum": list(words)}, {"type": "integer", "minimum": least, "maximum": most}]})


def duration(spec: keys.Duration) -> Validator:
    """Seconds as a float, from 500ms, 1.5s, 10m or 1h."""

    def check(value: Value, key: str) -> float:
        seconds = read_seconds(value.text) if isinstance(value.data, str) else None
        if seconds is None:
            if _NUMBER.fullmatch(value.text) and len(value.text) <= 40:
                raise value.error(key, f"{value.text} has no unit", f"write {value.text}s, or with ms, m or h")
            raise value.error(key, f"is {value.shown()}", "it must be a duration such as 500ms, 1.5s, 10m or 1h")
        if seconds == 0 and not spec.zero:
            raise value.error(key, f"is {value.text}", "it must be more than 0")
        if seconds < spec.least:
            raise value.error(key, f"is {value.text}", f"it must be at least {written_seconds(spec.least)}")
        if seconds > MAX_SECONDS:
            raise value.error(key, f"is {value.text}", "it must be at most 168h")
        return seconds

    nought = "" if spec.zero else r"(?!0+(\.0+)?[a-z])"
    return Validator(check, {"type": "string", "pattern": f"^{nought}{_DURATION}$"}, written_seconds)


def read_seconds(text: str) -> float | None:
    """Returns the seconds of 500ms, 1.5s, 10m or 1h; None for any other text."""
    match = re.fullmatch(_DURATION, text)
    return round(float(match[1]) * _UNITS[match[2]], 9) if match else None


def written_seconds(seconds: float) -> str:
    """A duration as YAML may have it, exact to a nanosecond: 500ms, 90s, 10m, 1h."""
    for unit in ("h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    small = 0 < seconds < 1
    digits = f"{seconds * 1000 if small else seconds:.9f}".rstrip("0").rstrip(".")
    return f"{digits}{'ms' if small else 's'}"


def shown_seconds(seconds: float) -> str:
    """A duration as a person writes it: 500ms, 1.5s, 600s."""
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def size() -> Validator:
    """Bytes, from 100MiB or 2GiB; at most 1024TiB."""

    def check(value: Value, key: str) -> int:
        match = re.fullmatch(_SIZE, value.data) if isinstance(value.data, str) else None
        if match is None or int(match[1]) * _SIZES[match[2]] > 2**50:
            raise value.error(key, f"is {value.shown()}", "it must be a size such as 100MiB or 2GiB, at most 1024TiB")
        return int(match[1]) * _SIZES[match[2]]

    return Validator(check, {"type": "string", "pattern": f"^{_SIZE}$"}, _written_size)


def _written_size(size: int) -> str:
    unit = next(name for name in reversed(_SIZES) if size % _SIZES[name] == 0 and (size or name == "B"))
    return f"{size // _SIZES[unit]}{unit}"


def listen() -> Validator:
    """off, loopback, or an IP address of this machine ("0.0.0.0" and "::" are all of them)."""

    def check(value: Value, key: str) -> str:
        # YAML 1.1 takes a bare off for false, YAML 1.2 for text.
        if value.data is False or value.data in ("off", "loopback"):
            return str(value.data or "off")
        try:
            return str(ipaddress.ip_address(value.data if isinstance(value.data, str) else ""))
        except ValueError:
            raise value.error(key, f"is {value.shown()}", "it must be off, loopback or an IP address") from None

    address = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
    return Validator(check, {"anyOf": [{"enum": ["off", "loopback", False]}, address]})


def auto_hang() -> Validator:
    """off, notify or restart; false and true stand for the first and the last."""
    words = tuple(one.value for one in AutoHang)

    def check(value: Value, key: str) -> AutoHang:
        if isinstance(value.data, bool):
            return AutoHang.RESTART if value.data else AutoHang.OFF
        if value.data not in words:
            raise value.error(key, f"is {value.shown()}", f"it must be {' or '.join(words)}")
        return AutoHang(value.data)

    return Validator(check, {"enum": [*words, True, False]}, str)


def signal_name(spec: keys.Signal) -> Validator:
    """A signal's name with its SIG."""
    names = [name for name in SIGNALS if not spec.caught or name not in ("SIGKILL", "SIGSTOP")]

    def check(value: Value, key: str) -> str:
        name = _signal_of(value)
        if name is not None and name not in names:
            shown = name if name == value.text else f"{value.text} ({name})"
            raise value.error(key, f"{shown} can be caught by no program", "name another, such as SIGTERM")
        if value.data not in names:
            right = f"write {name}" if name else "it must be a signal's name, such as SIGTERM or SIGUSR1"
            raise value.error(key, f"is {value.shown()}", right)
        return str(value.data)

    return Validator(check, {"enum": names})


def _signal_of(value: Value) -> str | None:
    """Returns the name of a signal that was written as 9, KILL or sigkill; None for anything else."""
    if value.text.isdecimal() and len(value.text) < _LONGEST_WORD:
        return next((one.name for one in signal.Signals if one.value == int(value.text)), None)
    word = value.text.upper()
    return next((name for name in SIGNALS if word in (name, name.removeprefix("SIG"))), None)


def path_template(spec: keys.PathTemplate) -> Validator:
    """A path in which {job_id} is the only placeholder."""
    plain = text(keys.Text("a path", ".*" if spec.empty else ".+"))

    def check(value: Value, key: str) -> str:
        path: str = plain(value, key)
        try:
            parts = {
                (name, how or "", to or "") for _, name, how, to in string.Formatter().parse(path) if name is not None
            }
        except ValueError as error:
            raise value.error(key, f"is {value.shown()}: {error}", "the only placeholder is {job_id}") from None
        if not parts <= {("job_id", "", "")}:
            raise value.error(key, f"is {value.shown()}", "the only placeholder is {job_id}")
        return path

    return Validator(
        check, {**plain.schema, "pattern": r"^([^{}]|\{\{|\}\}|\{job_id\})" + ("*$" if spec.empty else "+$")}
    )
