"""The errors of the lab: their text tells what went wrong, where, and which log has more."""


class LabError(Exception):
    """Raised when a request to the lab failed; the message is for people."""


class ArchiveMoved(LabError):
    """Raised when Debian's archive no longer has the packages of a release of the lab."""
