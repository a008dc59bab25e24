"""Processes of `child` that wait for models, so that a solve need not start one."""

import atexit
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .child import Answered, Asked, Failed

HEAD = struct.Struct(">cQ")  # as in `child`
# Without the script's folder on the path, where its neighbours would be found first.
CHILD = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]
MOST_IDLE = 2


class Server:
    """One process; it solves a model at a time, with one number of threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._ended = False
        self._process = subprocess.Popen(
            CHILD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A session of its own: a Ctrl-C of the terminal comes through us, once.
            start_new_session=os.name == "posix",
        )

    def solve(
        self, asked: "Asked", model: bytes, log: Callable[[str], None]
    ) -> "Answered | Failed | None":
        """Return the answer; None where the process ended first, whoever ended it."""
        sent, got = self._process.stdin, self._process.stdout
        if sent is None or got is None:
            raise TypeError("the process was started with pipes")
        try:
            for kind, content in ((b"Q", json.dumps(asked).encode()), (b"M", model)):
                sent.write(HEAD.pack(kind, len(content)) + content)
            sent.flush()
        except (BrokenPipeError, ConnectionResetError):
            self._ended = True
            return None
        while len(head := got.read(HEAD.size)) == HEAD.size:
            kind, length = HEAD.unpack(head)
            content = got.read(length)
            if kind == b"A" and len(content) == length:
                answer: Answered | Failed = json.loads(content)
                return answer
            log(content.decode("utf-8", "replace"))
        self._ended = True
        return None

    def running(self) -> bool:
        """Return whether it can take a model."""
        return not self._ended and self._process.poll() is None

    def end(self) -> None:
        """End the process, in the midst of a solve as well."""
        self._ended = True  # at once: a killed process takes its time to go
        with suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> int:
        """End it, wait for it, and let its pipes go; the exit code."""
        self.end()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not sent
                if pipe is not None:
                    pipe.close()
        return code


class _Pool:
    """Servers that wait; a solve within a solve gets another one."""

    def __init__(self) -> None:
        self._idle: list[Server] = []
        self._lock = threading.Lock()
        self._mine = os.getpid()
        atexit.register(self.close)

    def take(self, threads: int) -> Server:
        with self._lock:
            fit = [s for s in self._idle if s.threads == threads and s.running()]
            if fit:
                self._idle.remove(fit[-1])
                return fit[-1]
        return Server(threads)

    def give_back(self, server: Server) -> None:
        with self._lock:
            self._idle.append(server)
            late = [self._idle.pop(0)] if len(self._idle) > MOST_IDLE else []
        for one in late:
            one.close()

    def close(self) -> None:
        if os.getpid() != self._mine:
            return  # the parent's
        while self._idle:
            self._idle.pop().close()


@cache
def _pool(process: int) -> _Pool:
    """The servers of this process; a forked child has none of its parent's."""
    return _Pool()


@contextmanager
def server(threads: int) -> Iterator[Server]:
    """A server for one solve; it waits for the next one if it has not ended."""
    pool = _pool(os.getpid())
    taken = pool.take(threads)
    finished = False
    try:
        yield taken
        finished = taken.running()
    finally:
        if finished:
            pool.give_back(taken)
        else:
            taken.close()
