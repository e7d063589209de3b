"""The one error of the configuration."""


class ConfigError(Exception):
    """The configuration is wrong; `str()` is one line, "FILE:LINE: KEY: what is wrong; what would be right".

    The command line prints it and exits with 2.
    """

    def __init__(self, where: str, key: str, wrong: str, right: str) -> None:
        """`where` is "FILE:LINE", a file alone, or the name of another source; `key` may be empty."""
        place = f"{where}: {key}" if key else where
        line = f"{place}: {wrong}; {right}"
        super().__init__("".join(char if char.isprintable() else " " for char in line))
