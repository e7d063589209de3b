"""The link between a daemon and its child: a socket pair with one JSON object per line, after a line with the
protocol."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections import deque

from ft_supervisor.core.protocol.codec import CodecError, decode, encode
from ft_supervisor.core.protocol.model import PROTOCOL
from ft_supervisor.core.protocol.orders import ORDERS, Order
from ft_supervisor.core.words import one_line

LINK_FD_ENV = "FT_SUPERVISOR_LINK"
"""The environment variable in which a child finds its end's file descriptor."""

MAX_LINE = 16 * 2**20
"""Bytes; a Begin for 10,000 nodes is about one MiB."""


class LinkClosed(ConnectionError):
    """The other end is gone, does not follow the protocol, or does not read. Nothing more can be received from it."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, one for each end. They are not inheritable until passed on (`pass_fds`)."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


class Link:
    """One end of the link. `send` and `flush` are for any thread; `receive` and `drain` are for one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._searched = 0
        self._greeted = False
        self._orders: deque[Order] = deque()
        self._ended: str | None = None
        """Why nothing more can be received. Orders that came before are still in `_orders`."""
        self._unsent = bytearray()
        self._unsendable: str | None = None
        self._sending = threading.Condition()
        self._post(json.dumps({"protocol": PROTOCOL}).encode())

    def fileno(self) -> int:
        """Return the descriptor to poll for reading; -1 after close."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end. The other end takes that for the death of this process."""
        with self._sending:
            self._unsendable = self._ended = "closed here"
            self._socket.close()

    # -- sending

    def send(self, order: Order) -> None:
        """Send an order without waiting: a thread sends later what the other end does not read now. Raises LinkClosed
        when the other end is gone, or has left MAX_LINE bytes unread; orders that it sent before can still be
        received."""
        self._post(encode(order, limit=MAX_LINE))

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait at most `timeout` seconds until the socket has taken all orders, and return whether it has. Call it
        before leaving by os._exit."""
        with self._sending:
            self._sending.wait_for(lambda: not self._unsent or self._unsendable is not None, timeout)
            return not self._unsent

    def _post(self, line: bytes) -> None:
        with self._sending:
            if self._unsent and len(self._unsent) + len(line) > MAX_LINE:
                self._unsendable = self._unsendable or "the other end does not read"
            if self._unsendable is None:
                idle = not self._unsent
                self._unsent += line + b"\n"
                if idle:
                    self._write()
                    if self._unsent:
                        threading.Thread(target=self._write_rest, args=(self.fileno(),), daemon=True).start()
            if self._unsendable is not None:
                raise LinkClosed(self._unsendable)

    def _write(self) -> None:
        """Write as much as the socket takes."""
        try:
            while self._unsent and self._unsendable is None:
                sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError as error:
            self._unsendable = str(error)

    def _write_rest(self, fd: int) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        while True:
            poll.poll(1000)  # bounded, as nothing wakes it when this end is closed
            with self._sending:
                self._write()
                if not self._unsent or self._unsendable is not None:
                    self._sending.notify_all()
                    return

    # -- receiving

    def receive(self, timeout: float | None) -> Order | None:
        """Return the next order, waiting `timeout` seconds (None: for ever); None when nothing came. Raises
        LinkClosed."""
        until = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self._orders:
            if self._ended is not None:
                raise LinkClosed(self._ended)
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            if not poll.poll(left):
                return None
            self._read()
        return self._orders.popleft()

    def drain(self) -> list[Order]:
        """Return all orders that have come, without waiting. Raises LinkClosed, but first returns the orders that came
        before the end; the socket stays readable then, so that a poll reports it again."""
        if self._ended is None:
            self._read()
        if self._ended is not None and not self._orders:
            raise LinkClosed(self._ended)
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def _read(self) -> None:
        try:
            for _ in range(64):  # more than a socket buffer holds, and a bound against floods
                data = self._socket.recv(2**18, socket.MSG_DONTWAIT)
                if not data:
                    raise LinkClosed("the other end is gone")
                self._buffer += data
                self._split()
        except BlockingIOError:
            return
        except LinkClosed as error:
            self._ended = str(error)
            self._refuse()
        except OSError as error:
            self._ended = f"the other end is gone ({error.strerror})"

    def _refuse(self) -> None:
        """Shut down both directions: the other end notices, and this end stays readable."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _split(self) -> None:
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            self._accept(line)
        self._searched = len(self._buffer)
        if len(self._buffer) > MAX_LINE:
            raise LinkClosed("the other end sent too long a line")

    def _accept(self, line: bytes) -> None:
        try:
            if self._greeted:
                self._orders.append(decode(line, ORDERS, limit=MAX_LINE))
                return
            self._greeted = json.loads(line) == {"protocol": PROTOCOL}
        except (CodecError, ValueError, RecursionError) as error:
            raise LinkClosed(f"the other end sent garbage: {one_line(str(error))}") from None
        if not self._greeted:
            raise LinkClosed(f"protocol {PROTOCOL} expected, the other end has {one_line(repr(line[:80]))}")
