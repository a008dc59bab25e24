"""A connection between two hosts of a run: JSON lines over TCP, both ways."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

from .processes import Line

#: Seconds that a line may take to leave; who reads nothing for so long is gone.
_SEND_S = 10


class Link:
    """Sends and reads lines; a link that failed stays closed."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        limit = struct.pack("ll", _SEND_S, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._lock = connection, threading.Lock()

    def send(self, line: Line) -> None:
        """Send a line; where that fails, the link closes, and its reader ends."""
        text = json.dumps(line).encode() + b"\n"
        try:
            with self._lock:
                self._connection.sendall(text)
        except OSError:
            self.close()

    def lines(self) -> Iterator[Line]:
        """Yield what the other side sends, until it is gone."""
        with suppress(OSError, ValueError), self._connection.makefile("rb") as file:
            for text in file:
                if isinstance(line := json.loads(text), dict):
                    yield line

    def close(self) -> None:
        """Close it for both sides."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
