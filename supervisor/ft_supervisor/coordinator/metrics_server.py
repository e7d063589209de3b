"""Serves metrics to Prometheus: a small HTTP server in a thread of its own, for which nothing waits.

Every coordinator's process listens from its start, and the metric `in_charge` marks the one in charge: so counters
exist, at zero, before anything counts, and the successor of a dead coordinator is no new target. Clients are bounded in
number, time and bytes, and accepted so slowly that a flood of them takes no core from the job. No error here ends the
coordinator.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable

from ft_supervisor.process.log import log
from ft_supervisor.process.ports import bind_first

AGAIN = 30.0
"""Seconds until a port that was taken is tried again."""
CLIENT_BOUND = 5.0
"""Seconds for a client's request and answer together; Prometheus itself waits for 10."""
CLIENTS = 16
"""Clients at a time; as many more wait in the kernel, and further ones get no answer."""

PACE = 0.01
"""Seconds between two clients."""
REQUEST_BYTES = 8192
PLAIN = "text/plain; charset=utf-8"


def host(listen: str, addr: str) -> str:
    """Return the address to listen on, from the policy's `metrics.listen` (not off) and this node's own. A node whose
    own is a loopback address is one of several on this machine."""
    if listen != "loopback":
        return listen
    try:
        return addr if ipaddress.ip_address(addr).is_loopback else "127.0.0.1"
    except ValueError:  # a host name
        return "127.0.0.1"


class Server:
    """Listens from now on, if it can. A failure is logged once, and it tries again every AGAIN seconds.

    `text` returns the content, None for none; it is called in the server's thread. `kind`: the content type.
    """

    def __init__(self, host: str, port: int, kind: str, text: Callable[[], bytes | None]) -> None:
        self._host = host
        self._port = port
        self._kind = kind
        self._text = text
        self._told: set[str] = set()
        self._answering: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._tell("metrics_failed", error=f"{type(error).__name__}: {error}")

    async def _serve(self) -> None:
        with await self._listen() as listening:
            listening.listen(CLIENTS)  # instead of thousands
            listening.setblocking(False)
            name, port = listening.getsockname()[:2]
            log("metrics_served", host=name, port=port)
            slots = asyncio.Semaphore(CLIENTS)
            while True:
                await slots.acquire()
                await self._accept(listening, slots)

    async def _listen(self) -> socket.socket:
        while True:
            try:
                return bind_first(self._host, [self._port])
            except OSError as error:  # the port is taken, or the address is not this node's: both may change
                self._tell("metrics_not_served", host=self._host, port=self._port, error=str(error), again_in=AGAIN)
                await asyncio.sleep(AGAIN)

    async def _accept(self, listening: socket.socket, slots: asyncio.Semaphore) -> None:
        try:
            client, _ = await asyncio.get_running_loop().sock_accept(listening)
        except OSError as error:  # no file descriptors left, or a client that is gone already
            slots.release()
            self._tell("metrics_client_failed", error=str(error))
            await asyncio.sleep(1.0)
            return
        task = asyncio.create_task(self._answer(client, slots))
        self._answering.add(task)  # asyncio itself keeps no reference to it
        task.add_done_callback(self._answering.discard)
        await asyncio.sleep(PACE)

    async def _answer(self, client: socket.socket, slots: asyncio.Semaphore) -> None:
        """Answer one request of a client. Its errors concern no other client."""
        try:
            with client:
                client.setblocking(False)
                async with asyncio.timeout(CLIENT_BOUND):
                    if head := await _head(client):
                        await asyncio.get_running_loop().sock_sendall(client, self._reply(head))
        except (OSError, TimeoutError):
            return
        except Exception as error:
            self._tell("metrics_failed", error=f"{type(error).__name__}: {error}")
        finally:
            slots.release()

    def _reply(self, head: bytes) -> bytes:
        if b"\r\n\r\n" not in head:
            return _response(431, "Request Header Fields Too Large", b"too long\n")
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(405, "Method Not Allowed", b"GET or HEAD\n")
        if path != b"/metrics":
            return _response(404, "Not Found", b"look at /metrics\n")
        content = self._text()
        if content is None:
            return _response(503, "Service Unavailable", b"the coordinator's main loop says nothing\n")
        return _response(200, "OK", content, self._kind, body=method == b"GET")

    def _tell(self, event: str, **fields: object) -> None:
        """Log each event once."""
        if event not in self._told:
            self._told.add(event)
            log(event, "warning", **fields)


async def _head(client: socket.socket) -> bytes:
    """Return the request's line and headers, or more bytes than are allowed; nothing if the client has left."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) <= REQUEST_BYTES:
        if not (more := await asyncio.get_running_loop().sock_recv(client, REQUEST_BYTES)):
            return b""
        head += more
    return head


def _response(code: int, word: str, content: bytes, kind: str = PLAIN, *, body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {code} {word}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (content if body else b"")
