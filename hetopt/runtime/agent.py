"""A host's part in a run over hosts: it starts the ranks that the leader wants."""

import queue
import socket
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import RunFailed, Unsupported
from .links import Link
from .processes import Line, Local

#: Seconds between two looks, and between two signs of life.
_LOOK_S, _BEAT_S = 0.2, 1.0
# All ranks are clients of the store that the leader keeps (torch.distributed.TCPStore).
_STORE = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}


class Ending(Enum):
    """Why a host has no more part in a run, or not under this leader."""

    OVER = "all steps are done"
    LEFT = "a notice came, and its ranks have saved their states"
    LEADERLESS = "the leader is gone"


class Agent:
    """The ranks of a host, and its link to the leader."""

    def __init__(self, host: str, run: str, silent_s: float) -> None:
        self._host, self._run, self._silent_s = host, run, silent_s
        self._ranks: dict[int, Local] = {}
        self._folder = Path()

    def follow(
        self,
        connection: socket.socket,
        leaves: Callable[[], bool] = lambda: False,
    ) -> Ending:
        """Do what the leader says until either is gone.

        Once the host `leaves`, its ranks save their states first. Raises `Unsupported`
        where the leader refuses the host, and `RunFailed` where the run has failed.
        """
        link = Link(connection)
        link.send({"host": self._host, "run": self._run})
        with TemporaryDirectory(prefix="hetopt-host-") as folder:
            self._folder = Path(folder)
            try:
                return self._followed(link, leaves)
            finally:
                link.close()
                for rank in self._ranks.values():
                    rank.kill()
                for rank in self._ranks.values():
                    rank.wait()

    def _followed(self, link: Link, leaves: Callable[[], bool]) -> Ending:
        lines: queue.Queue[Line | None] = queue.Queue()
        threading.Thread(target=_read, args=(link, lines), daemon=True).start()
        heard = beaten = time.monotonic()
        leaving = False
        while True:
            try:
                line = lines.get(timeout=_LOOK_S)
                heard = time.monotonic()
                if line is None:
                    return Ending.LEFT if leaves() else Ending.LEADERLESS
                if self._is_over(link, line):
                    return Ending.OVER
            except queue.Empty:
                pass
            now = time.monotonic()
            if now - heard > self._silent_s:
                return Ending.LEADERLESS
            if now - beaten > _BEAT_S:
                link.send({"alive": True})
                beaten = now
            if leaves() and not leaving:
                link.send({"leaves": True})
                leaving = True
            elif leaving and self._is_idle():
                return Ending.LEFT

    def _is_over(self, link: Link, line: Line) -> bool:
        """Do what a line says; return whether the run is over."""
        if "start" in line:
            self._start(link, line)
        elif (rank := self._ranks.get(line.get("rank", -1))) is not None:
            if line.get("kill"):
                rank.kill()
            else:
                rank.say(line["word"])
        elif "refused" in line:
            raise Unsupported(line["refused"])
        elif line.get("failed"):
            raise RunFailed(line["failed"])
        return bool(line.get("over"))

    def _is_idle(self) -> bool:
        return all(rank.poll() is not None for rank in self._ranks.values())

    def _start(self, link: Link, line: Line) -> None:
        key = line["start"]
        folder = self._folder / str(key)
        folder.mkdir()
        file = folder / "job.json"
        file.write_text(line["job"], encoding="utf-8")

        def hear(said: Line | None) -> None:
            if said is not None:
                link.send({"rank": key, "line": said})
                return
            started.wait()
            rank = self._ranks[key]
            rank.wait()
            link.send({"rank": key, "code": rank.poll(), "ending": rank.ending})

        started = threading.Event()
        self._ranks[key] = Local(
            file, line["number"], line["slot"], line["meeting"], hear, _STORE
        )
        started.set()


def _read(link: Link, lines: "queue.Queue[Line | None]") -> None:
    for line in link.lines():
        lines.put(line)
    lines.put(None)
