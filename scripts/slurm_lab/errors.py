"""The one error of the lab: its text says what went wrong, where, and what to look at."""


class LabError(Exception):
    """Something that the lab was asked for did not happen; the message is for people."""


class ArchiveMoved(LabError):
    """Debian's archive no longer has what a release of the lab is made of."""
