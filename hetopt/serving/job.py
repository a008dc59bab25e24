"""A plan that is being made, in a process of its own, and the events of it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from ..plans import TrainingPlan
from ..schema import Instance
from ..text.documents import Document

Event = Document
_LONGEST_LINE = 256 * 2**20  # a result document with its instance
_ROOT = Path(__file__).resolve().parents[2]


class Job:
    """One order to the planning process; who follows hears all events from the first.

    `finish` makes the last event of the worker's: what is known of its plan. `starts`
    are plans to begin with, and where they are from.
    """

    def __init__(
        self,
        data: Instance,
        time_limit: float,
        finish: Callable[[Event], Event],
        starts: Sequence[tuple[str, TrainingPlan]] = (),
    ) -> None:
        self.id = token_hex(8)
        self.data, self.time_limit, self.finish = data, time_limit, finish
        self.starts = starts
        self.events: list[Event] = []
        self.process: asyncio.subprocess.Process | None = None
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.ended = self.stopped = False

    async def start(self) -> None:
        """Begin the work."""
        path = os.pathsep.join(
            dict.fromkeys((str(_ROOT), *filter(None, sys.path)))
        )  # the same hetopt, whatever the folder
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hetopt.serving.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,  # Ctrl-C is the server's
            env={**os.environ, "PYTHONPATH": path},
        )
        self._task = asyncio.create_task(self._listen())

    def stop(self) -> None:
        """End the search; its plan, if it has one, comes as the last event."""
        if self.stopped:  # a second signal would end what keeps the plan
            return
        self.stopped = True
        if self.events:
            self._signal(signal.SIGINT)
        else:  # it has not begun: there is nothing to keep
            self.kill()

    def kill(self) -> None:
        """End the process and all that it started, without an answer."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def follow(self, after: int = 0) -> AsyncIterator[tuple[int, Event]]:
        """Numbers from 1 and events, those behind `after`, until the last."""
        while True:
            while after < len(self.events):
                after += 1
                yield after, self.events[after - 1]
            if self.ended:
                return
            async with self._news:
                await self._news.wait_for(
                    lambda: self.ended or len(self.events) > after  # noqa: B023
                )

    async def _listen(self) -> None:
        """Hear the worker to its end, which is told whatever comes."""
        why = "the planning process ended without an answer; plan again"
        last = {"kind": "error", "error": {"kind": "ended", "message": why}}
        try:
            last = await self._heard() or last
        finally:
            self.kill()
            await self._add(last, ended=True)

    async def _heard(self) -> Event | None:
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            "instance": self.data.model_dump(mode="json"),
            "time_limit": self.time_limit,
            "starts": [
                (source, plan.model_dump(mode="json")) for source, plan in self.starts
            ],
        }
        with suppress(ConnectionError):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            await process.stdin.drain()
        last: Event | None = None
        while line := await process.stdout.readline():
            event = json.loads(line)
            if event["kind"] in ("result", "error"):
                last = event
            else:
                await self._add(event)
        await process.wait()
        if last is None and self.stopped:
            last = {"kind": "result", "seconds": 0.0, "document": None}
        if last is not None and last["kind"] == "result":
            last = await asyncio.to_thread(self.finish, last)
        return last

    async def _add(self, event: Event, *, ended: bool = False) -> None:
        async with self._news:
            self.events.append(event)
            self.ended = ended
            self._news.notify_all()
