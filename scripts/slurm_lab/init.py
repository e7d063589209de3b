"""The first process of one machine of the lab. It runs alone (`python -I init.py LABEL`), in new namespaces.

It reads its specification, a line of JSON, from stdin (the label, its log's path, shows up in lists of processes),
makes the `mounts` (arguments of mount(8)), enters the chroot (`root`) under its own host name, and writes its process
id as the host sees it. It stays, and reaps orphans, only once it has read "go": a starter that dies before it has
written that id down leaves no process behind.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def main() -> None:
    specification = json.loads(sys.stdin.readline())
    pid = Path("/proc/self").readlink()  # /proc is still the host's
    socket.sethostname(specification["hostname"])
    for arguments in specification["mounts"]:
        subprocess.run(["mount", *arguments], check=True)
    os.chroot(specification["root"])
    os.chdir("/")
    for folder, uid in specification["folders"]:
        Path(folder).mkdir(exist_ok=True)
        os.chown(folder, uid, -1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    print(pid, flush=True)
    if sys.stdin.readline() != "go\n":
        sys.exit("the starter is gone")
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    while True:
        reap()
        signal.sigwait({signal.SIGCHLD})


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # no child at all: nothing to reap


if __name__ == "__main__":
    main()
