"""Reads a file's text, with a bound on its size and on the time."""

import stat
from pathlib import Path

from yaml.reader import Reader

from ft_supervisor.config.errors import ConfigError

MAX_BYTES = 256 * 1024


def read_text(path: Path) -> str:
    """Returns the file's text. Raises `ConfigError` for a file that is not regular, small, in UTF-8 and free of
    characters that YAML does not allow."""
    right = "name a readable YAML file"
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(str(path), "", "is a directory", right)
        if not stat.S_ISREG(mode):
            # A pipe could keep us waiting for ever, a device could go on for ever.
            raise ConfigError(str(path), "", "is not a regular file", right)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(str(path), "", "no such file", right) from None
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}", right) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(str(path), "", f"larger than {MAX_BYTES} bytes", "keep it to settings")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{path}:{_line(raw[: error.start].decode('utf-8'))}"
        raise ConfigError(where, "", f"byte 0x{raw[error.start]:02x} is not UTF-8", "save the file as UTF-8") from None
    if bad := Reader.NON_PRINTABLE.search(text):
        where = f"{path}:{_line(text[: bad.start()])}"
        raise ConfigError(where, "", f"character {bad.group()!a} is not allowed in YAML", "remove it")
    return text


def _line(before: str) -> int:
    return before.count("\n") + 1
