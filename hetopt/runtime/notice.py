"""A notice that a run's machines go: a signal, a file, or an address of the cloud.

The signal is SIGTERM. Slurm sends it to what it ends (`scancel`, preemption with a
GraceTime, and `--signal=TERM@60` before the time limit), and torchrun passes it on to
its ranks. A file is a notice once it is there. An address is asked each second: it says
so where it answers with a text, as AWS's `spot/instance-action` (until then it is
not found), with TRUE, as Google's `instance/preempted`, or with an event of type
Preempt, as Azure's `scheduledevents`.

A run with a folder for its states then saves them after the step that it is in, and
ends in order; one without ends at once.
"""

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import Unsupported
from .jobs import Settings

#: Seconds between two questions, and that an address has for its answer.
_ASK_S, _ANSWER_S = 1.0, 2.0
_MOST_ANSWER = 1 << 16
_SCHEMES = ("http://", "https://")
# What clouds want to see before they tell a machine about itself.
_HEADERS = {"Metadata": "true", "Metadata-Flavor": "Google"}
_NOTHING = ("", "false", "none", "null")


def check(settings: Settings) -> None:
    """Raise `Unsupported` where a notice could not be heeded."""
    if settings.notice is not None and settings.checkpoint is None:
        raise Unsupported(
            "--notice: a notice has states saved: give --checkpoint with it"
        )


@contextmanager
def notices(settings: Settings) -> Iterator[threading.Event]:
    """Yield an event that a notice sets, where the run has a folder for its states.

    Only the main thread of a process hears signals.
    """
    noticed, over = threading.Event(), threading.Event()
    if settings.checkpoint is None:
        yield noticed
        return
    before: Any = None
    if is_main := threading.current_thread() is threading.main_thread():

        def note(number: int, frame: FrameType | None) -> None:
            noticed.set()

        before = signal.signal(signal.SIGTERM, note)
    # Of torchrun's ranks on a host the first asks for all.
    if settings.notice is not None and os.environ.get("LOCAL_RANK", "0") == "0":
        words = (settings.notice, noticed, over)
        threading.Thread(target=_ask, args=words, daemon=True).start()
    try:
        yield noticed
    finally:
        over.set()
        if is_main:
            signal.signal(signal.SIGTERM, before)


def _ask(place: str, noticed: threading.Event, over: threading.Event) -> None:
    """Set an event once a file or an address tells of a notice."""
    while not over.wait(_ASK_S):
        if _is_told(place):
            noticed.set()
            return


def _is_told(place: str) -> bool:
    if not place.startswith(_SCHEMES):
        return Path(place).exists()
    request = urllib.request.Request(place, headers=_HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            text = answer.read(_MOST_ANSWER).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):  # not found, or not there just now
        return False
    if text.lower() in _NOTHING:
        return False
    try:
        tree = json.loads(text)
    except ValueError:
        return True
    if isinstance(tree, dict) and "Events" in tree:
        kinds = [one.get("EventType") for one in tree["Events"]]
        return "Preempt" in kinds
    return True
