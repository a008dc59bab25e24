"""A plan that is being made, in a process of its own, and the events of it.

The process (`python -m hetopt.serving.job`) reads its order as a line of JSON,
`{"instance", "time_limit", "start"}`. Each line of its answer is an event with a `kind`
and `seconds`; the last is `result`, with the result document, or `error`. SIGINT ends
the search, which keeps its plan; the end of the input ends the process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import TextIO

import hetopt

from ..errors import HetoptError
from ..plans import TrainingPlan
from ..result import known_gap
from ..schema import Instance
from ..text.documents import Document

_EVERY_S = 0.05  # between two states
_ROOT = Path(__file__).resolve().parents[2]
Finish = Callable[[str, Document | None], Document]


class Job:
    """One order to the planning process; `events` grows until the job has `ended`.

    `finish` makes the last event of the digest and the result document, which is None
    where the process was stopped before it began.
    """

    def __init__(
        self,
        data: Instance,
        time_limit: float,
        start: TrainingPlan | None,
        finish: Finish,
    ) -> None:
        """Begin the work, from a plan of the instance if there is one."""
        self.id, self.digest = token_hex(8), data.digest
        self.events: list[Document] = []
        self.ended = self.stopped = False
        self._finish = finish
        # The same hetopt, whatever the folder.
        path = os.pathsep.join(dict.fromkeys((str(_ROOT), *filter(None, sys.path))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hetopt.serving.job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is the server's
            env={**os.environ, "PYTHONPATH": path},
        )
        order = {
            "instance": data.model_dump(mode="json"),
            "time_limit": time_limit,
            "start": None if start is None else start.model_dump(mode="json"),
        }
        threading.Thread(target=self._listen, args=(order,), daemon=True).start()

    def stop(self) -> None:
        """End the search; its plan, if it has one, comes as the last event."""
        if self.stopped:  # a second signal would end what keeps the plan
            return
        self.stopped = True
        if not self.events:  # it has not begun: there is nothing to keep
            self.kill()
        elif self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process and all that it started, without an answer."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self, order: Document) -> None:
        """Hear the process to its end, which is told whatever comes."""
        why = "the planning process ended without an answer; plan again"
        last: Document = {"kind": "error", "error": {"kind": "ended", "message": why}}
        try:
            last = self._heard(order) or last
        finally:
            self.kill()
            self.events.append(last)
            self.ended = True

    def _heard(self, order: Document) -> Document | None:
        last: Document | None = None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            event = json.loads(line)
            if event["kind"] in ("result", "error"):
                last = event
            else:
                self.events.append(event)
        self._process.wait()
        if last is None and self.stopped:
            last = {"kind": "result", "seconds": 0.0, "document": None}
        if last is None or last["kind"] == "error":
            return last
        try:
            told = self._finish(self.digest, last["document"])
        except HetoptError as error:
            return _error(error)
        return {"kind": "done", "seconds": last["seconds"], **told}


# --- the planning process ----------------------------------------------------------


class Teller:
    """A teller writes events, and states not more often than anybody can see."""

    def __init__(self, channel: TextIO) -> None:
        self._channel, self._began, self._told_at = channel, monotonic(), 0.0

    def tell(self, kind: str, **fields: object) -> None:
        """Write one event."""
        seconds = round(monotonic() - self._began, 3)
        event = {"kind": kind, "seconds": seconds, **fields}
        self._channel.write(json.dumps(event, allow_nan=False) + "\n")
        self._channel.flush()

    def report(self, incumbent: int | None, bound: int | None) -> None:
        """Tell what is known, as the progress of a call."""
        if monotonic() - self._told_at >= _EVERY_S:
            self._told_at = monotonic()
            gap = known_gap(incumbent, bound)
            self.tell("state", incumbent=incumbent, bound=bound, gap=gap)


def main() -> None:
    """Do the one order that comes."""
    # What solvers print must not get between the events.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_ends_with_input, daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    teller = Teller(channel)
    last = answered(order, teller)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is written whole
    teller.tell(**last)


def answered(order: Document, teller: Teller) -> Document:
    """Plan as `hetopt.plan` does; the last event, which is not told yet."""
    try:
        data = Instance.model_validate_json(json.dumps(order["instance"]))
        plan = order.get("start")
        start = plan and TrainingPlan.model_validate(plan, strict=False)
        teller.tell("began")
        limit = order["time_limit"]
        found = hetopt.plan(data, start=start, limits=limit, progress=teller.report)
    except HetoptError as error:
        return _error(error)
    except KeyboardInterrupt:  # before there was anything to keep
        return {"kind": "result", "document": None}
    return {"kind": "result", "document": found.to_file()}


def _error(error: HetoptError) -> Document:
    return {"kind": "error", "error": {"kind": error.kind, "message": str(error)}}


def _ends_with_input() -> None:
    """End all processes when whoever ordered is gone, who would read the answer."""
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():  # solvers may have processes of their own
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
