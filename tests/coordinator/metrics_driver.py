"""A metrics server in a process of its own, until its standard input ends: HOST PORT BYTES [NAME=X ...].

It serves so many bytes; none at all for "nothing", an error for "broken". NAME=X sets a constant of the module.
"""

import os
import sys

from ft_supervisor.coordinator import metrics_server


def text() -> bytes | None:
    if sys.argv[3] == "broken":
        raise ZeroDivisionError("of the test")
    return None if sys.argv[3] == "nothing" else b"x" * int(sys.argv[3])


if __name__ == "__main__":
    for constant in sys.argv[4:]:
        name, _, value = constant.partition("=")
        setattr(metrics_server, name, type(getattr(metrics_server, name))(float(value)))
    metrics_server.Server(sys.argv[1], int(sys.argv[2]), "text/x", text)
    sys.stdin.read()
    os._exit(0)
