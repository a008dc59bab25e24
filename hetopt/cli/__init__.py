"""The command line: these files alone print or exit (`output`)."""

import atexit
import gc
import os
import signal
import sys
from types import FrameType

import typer

from . import (
    benchmarks,
    checking,
    doctor,
    exchange,
    executing,
    explaining,
    listing,
    measuring,
    planning,
    questions,
    queueing,
    recovering,
    scheduling,
    serving,
)
from .app import app
from .output import be_patient, unexpected

__all__ = ["app", "main"]

# In the order of the help.
for _command in (
    *(planning.plan, planning.solve, planning.compare, planning.provision),
    *(checking.check, scheduling.schedule, benchmarks.bench),
    *(exchange.assemble, exchange.export, explaining.simulate, doctor.doctor),
    *(measuring.profile, executing.checkpoint, explaining.explain),
    *(recovering.recover, recovering.replay, measuring.predict, measuring.calibrate),
    *(questions.fit, questions.scale, questions.rent, executing.run),
    *(queueing.submit, queueing.queue, queueing.status, queueing.cancel),
    *(queueing.logs, serving.serve),
):
    app.command()(_command)
app.command("list")(listing.list_entries)
# What is no option of the command is one of the format: it comes with the paths.
app.command("import", context_settings={"ignore_unknown_options": True})(
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
