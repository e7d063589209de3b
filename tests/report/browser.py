"""Drives a headless Chromium by its debugging protocol through a pipe, without driver and port."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BOUND = 120.0
"""Seconds for one answer, on a machine that does other things too."""


def installed() -> str | None:
    """Return the first browser in PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `events`: all events that it has sent, as (method, params)."""

    def __init__(self, program: str, folder: Path) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._buffer = b""
        self._number = 0
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # It reads from 3 and writes to 4, whatever these are here.
        moved = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        line = [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={folder}", "about:blank"),
        ]
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", moved, "bash", *line],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._session: str | None = None

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._session = None
            self.call("Browser.close")
        except (OSError, AssertionError):
            pass
        finally:
            os.close(self._write)
            os.close(self._read)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
                self._process.wait()

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result
            self.events.append((found["method"], found.get("params", {})))

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        before = len(self.events)
        self.call("Page.navigate", url=path.as_uri())
        while not any(method == "Page.loadEventFired" for method, _ in self.events[before:]):
            found = self._message()
            self.events.append((found["method"], found.get("params", {})))

    def evaluate(self, script: str) -> Any:
        """Return the value of the script in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + BOUND
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0], "it does not answer"
            data = os.read(self._read, 1 << 16)
            assert data, "it has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found
