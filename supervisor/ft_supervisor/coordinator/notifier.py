"""Sends notices to commands and webhooks, in a thread for each: neither the main loop nor a decision ever waits for
them, and one that hangs delays no other.

A notice is JSON, one object:

    version  1
    id       the same for the same event, whichever coordinator sends it: a takeover may send one twice
    kind     restart, spares_low, no_progress, verdict
    time     seconds since the epoch, by the clock of the coordinator's node
    job, job_id, run_id, user, node   the configuration's name, Slurm's id of the job (null without Slurm), the run, its
             user, the coordinator's node
    cycle    TERM.N, null for none
    text     one line for people
    exit_code   of a verdict, else null
    more     notices of this kind that were left out since the last one, as they came too fast
"""

from __future__ import annotations

import getpass
import json
import os
import queue
import re
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any

from ft_supervisor.coordinator.notices import Notice
from ft_supervisor.core.protocol.model import Job, job_name
from ft_supervisor.core.protocol.settings import NoticeKind, Notify
from ft_supervisor.core.words import one_line
from ft_supervisor.process import clock
from ft_supervisor.process.log import log
from ft_supervisor.process.tree import kill_group, pdeath_command

VERSION = 1
BOUND = 10.0
"""Seconds for one command or one POST."""
ATTEMPTS = 3
PAUSE = 5.0
"""Seconds between two attempts."""
EVERY = 60.0
"""Seconds between two notices of one kind; those that come sooner are counted."""
MOST = 64
"""Notices that wait for one command or webhook, at most."""


class Notifier:
    """Sends the job's notices. For the main thread."""

    def __init__(self, job: Job, node: str) -> None:
        self._job = job
        self._about = {
            "job": job_name(job.policy),
            "job_id": os.environ.get("SLURM_JOB_ID"),
            "run_id": job.run_id,
            "user": user_name(),
            "node": node,
        }
        self._queues: list[tuple[Notify, queue.Queue[bytes]]] = []
        self._sent: dict[NoticeKind, float] = {}
        self._more: Counter[NoticeKind] = Counter()
        for notify in job.settings.notify:
            waiting: queue.Queue[bytes] = queue.Queue(MOST)
            self._queues.append((notify, waiting))
            threading.Thread(target=_deliver, args=(notify, waiting), name="notices", daemon=True).start()

    def send(self, notice: Notice) -> None:
        """Send a notice to all that want its kind. Never waits. A verdict always goes out."""
        wanting = [waiting for notify, waiting in self._queues if not notify.kinds or notice.kind in notify.kinds]
        now = clock.now()
        late = now - self._sent.get(notice.kind, float("-inf")) < EVERY
        if late and notice.kind is not NoticeKind.VERDICT:
            self._more[notice.kind] += 1
            return
        self._sent[notice.kind] = now
        body = json.dumps(self._document(notice)).encode()
        for waiting in wanting:
            with suppress(queue.Full):  # it hangs: the newest are dropped
                waiting.put_nowait(body)

    def flush(self, bound: float) -> bool:
        """Return whether all notices are delivered, or given up, within `bound` seconds."""
        until = time.monotonic() + bound
        while any(waiting.unfinished_tasks for _, waiting in self._queues):
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def _document(self, notice: Notice) -> dict[str, Any]:
        more, self._more[notice.kind] = self._more[notice.kind], 0
        return {
            "version": VERSION,
            "id": notice.id,
            "kind": notice.kind.value,
            "time": round(time.time(), 3),
            **self._about,
            "cycle": None if notice.cycle is None else str(notice.cycle),
            "text": notice.text,
            "exit_code": notice.exit_code,
            "more": more,
        }


def _deliver(notify: Notify, waiting: queue.Queue[bytes]) -> None:
    while True:
        body = waiting.get()
        try:
            deliver(notify, body)
        finally:
            waiting.task_done()


def deliver(notify: Notify, body: bytes, pause: float = PAUSE) -> bool:
    """Deliver one notice, in ATTEMPTS attempts `pause` seconds apart. Return whether it was taken; if not, the log says
    why."""
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause)
        problem = _run(notify.command, body) if notify.command else _post(notify.webhook, body)
        if not problem:
            return True
    to = notify.command[0] if notify.command else "webhook"
    log("notice_failed", "warning", to=to, reason=problem)
    return False


def _run(command: tuple[str, ...], body: bytes) -> str:
    """Run the command; return what went wrong, "" for nothing."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            pdeath_command(command), stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, start_new_session=True
        )
    except (OSError, MemoryError) as error:
        return one_line(str(error))
    try:
        _, said = process.communicate(body, timeout=BOUND)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1.0)
        return f"it took more than {BOUND:g} s"
    if process.returncode == 0:
        return ""
    last = said.decode(errors="replace").strip().splitlines()[-1:]
    code = process.returncode
    how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    return one_line(": ".join([how, *last]))


def _post(webhook: str, body: bytes) -> str:
    """Post the body; return what went wrong, "" for nothing. The URL may be a secret: it is not in what is returned."""
    try:
        url = _url(webhook)
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except OSError as error:
        return one_line(str(getattr(error, "reason", "") or error.strerror or type(error).__name__))
    except (ValueError, KeyError, InvalidURL):
        return "no URL there"
    except HTTPException as error:
        return f"not an HTTP answer ({type(error).__name__})"
    return ""


def _url(webhook: str) -> str:
    """Return the URL itself. Raises OSError, KeyError, ValueError where there is none."""
    kind, _, where = webhook.partition(":")
    url = (os.environ[where] if kind == "env" else Path(where).read_text()).strip()
    if not re.fullmatch(r"https?://[!-~]+", url):
        raise ValueError("no http URL")
    return url


def user_name() -> str:
    """Return the user of this process; the number where it has no name."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return str(os.getuid())
