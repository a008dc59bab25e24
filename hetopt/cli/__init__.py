"""The command line: these files alone print or exit (`output`)."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import typer

from . import (
    benchmarks,
    checking,
    exchange,
    executing,
    explaining,
    listing,
    measuring,
    planning,
    questions,
    queueing,
    recovering,
)
from .app import app
from .output import be_patient, unexpected

__all__ = ["app", "main"]

#: The commands by what one needs them for, in the order of the help.
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Plan": (exchange.assemble, planning.plan, checking.check, planning.compare),
    "Understand": (explaining.explain, explaining.simulate, explaining.serve),
    "Launch": (
        *(exchange.export, executing.run, executing.checkpoint),
        *(recovering.recover, recovering.replay),
        *(queueing.submit, queueing.queue, queueing.status, queueing.cancel),
        queueing.logs,
    ),
    "Cost": (questions.fit, questions.rent, planning.provision, questions.scale),
    "Research": (planning.solve, recovering.schedule),
    "Measure": (measuring.profile, measuring.predict, measuring.calibrate),
    "Tools": (listing.doctor,),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.command("bench", rich_help_panel="Research")(benchmarks.run_suite)
app.command("list", rich_help_panel="Tools")(listing.list_entries)
# What is no option of the command is one of the format: it comes with the paths.
_unknown = {"ignore_unknown_options": True}
app.command("import", context_settings=_unknown, rich_help_panel="Tools")(
    exchange.import_file
)


#: New objects after which unreachable ones are looked for. Most of what start-up makes
#: stays: to look through it at Python's usual 700 takes a tenth of the time.
_NEW_OBJECTS = 50_000


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; SIGTERM ends the work as Ctrl-C does."""
    gc.set_threshold(_NEW_OBJECTS)
    # Matrices here are small: threads for them take more time than they save.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # All memory goes back at the end: looking for cycles first takes a tenth of a s.
    atexit.register(gc.freeze)
    signal.signal(signal.SIGTERM, _interrupt)
    be_patient()
    sys.excepthook = unexpected
    typer.main.get_command(app)()
