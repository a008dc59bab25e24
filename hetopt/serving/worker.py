"""The process that plans: an order on standard input, lines of JSON on its output.

The first line is the order, `{"instance", "time_limit", "starts"}`; `starts` are pairs
of where a plan is from and the plan. Each line of the answer is an event with a `kind`;
the last is `result`, with the result document, or `error`.
SIGINT ends the search, which keeps its plan; the end of the input ends the process.
"""

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from time import monotonic
from typing import TextIO

from .. import api
from ..api.starts import Known, known_of
from ..errors import HetoptError
from ..plans import TrainingPlan
from ..result import known_gap
from ..schema import Instance
from ..text.documents import Document

_EVERY_S = 0.05  # between two events of the same kind


class Teller:
    """Writes events, not more often than anybody can see."""

    def __init__(self, channel: TextIO) -> None:
        self.channel = channel
        self.start = monotonic()
        self.told_at = -1.0
        self.told: tuple[int | None, int | None] = (None, None)
        self.state: tuple[int | None, int | None] = (None, None)  # the newest

    def tell(self, kind: str, **fields: object) -> None:
        """Write one event, after the state that was held back."""
        if kind != "state":
            self.flush()
        event = {"kind": kind, "seconds": round(monotonic() - self.start, 3), **fields}
        self.channel.write(json.dumps(event, allow_nan=False) + "\n")
        self.channel.flush()

    def flush(self) -> None:
        """Write the state, where it is not written yet."""
        if self.state != self.told:
            incumbent, bound = self.told = self.state
            self.told_at = monotonic()
            gap = known_gap(incumbent, bound)
            self.tell("state", incumbent=incumbent, bound=bound, gap=gap)

    def report(self, incumbent: int | None, bound: int | None) -> None:
        """Tell what is known, as the progress of a call."""
        self.state = incumbent, bound
        if monotonic() - self.told_at >= _EVERY_S:
            self.flush()


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
        teller.tell("began")
        found = api.plan(
            data,
            start=_start_knowledge(data, order),
            limits=order["time_limit"],
            progress=teller.report,
        )
    except HetoptError as error:
        said = {"kind": error.kind, "message": str(error)}
        return {"kind": "error", "error": said}
    except KeyboardInterrupt:  # before there was anything to keep
        return {"kind": "result", "document": None}
    return {"kind": "result", "document": found.to_file()}


def _start_knowledge(data: Instance, order: Document) -> Known:
    """Return what the order's starts and the library have of the instance."""
    here = known_of(data)
    starts = (
        (source, TrainingPlan.model_validate(plan, strict=False))
        for source, plan in order.get("starts", ())
    )
    return replace(here, plans=(*starts, *here.plans))


def _ends_with_input() -> None:
    """Whoever ordered is gone, and with him who would read the answer."""
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():  # solvers may have processes of their own
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
