"""The commands about measured runs, registered by `hetopt.cli`."""

from pathlib import Path
from typing import Annotated

import typer

from . import output
from .options import AsJson, arg, opt
from .output import written

_CONSTANTS = typer.Option(
    metavar="FILE",
    help="Constants written by `hetopt calibrate` or `hetopt profile`; they take "
    "precedence over the shipped ones.",
)
Constants = Annotated[Path | None, _CONSTANTS]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(predict)
    app.command()(calibrate)


def predict(
    runs: Annotated[Path, arg("Measured runs: rows as JSON, YAML or CSV.")],
    constants: Constants = None,
    fit_on: Annotated[
        Path | None, opt("RUNS", "Fit constants to these runs first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with measured runs, row by row.

    Time per iteration with an 80% interval, memory of the fullest GPU and whether it
    fits; or why the model cannot express a run.

    Example: `hetopt predict runs.json`. A trainer's log is compared with its prediction
    by `hetopt check --from train.log --instance X`.
    """
    from .. import api
    from ..report import predicted

    found = api.predict(runs, constants=constants, fit_on=fit_on)
    output.give(found.to_json(), predicted.terminal(found), as_json=as_json)


def calibrate(
    runs: Annotated[list[Path], arg("Your runs: rows as JSON, YAML or CSV.")],
    constants: Constants = None,
    out: Annotated[
        Path | None, opt("FILE", "Write the constants to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the cost model's constants to your own measured runs.

    The fit starts from the shipped constants, or those of `--constants`, and changes
    only what the runs determine. Each run is also predicted from the others.

    Example: `hetopt calibrate runs.csv --out constants.json`
    """
    from .. import api
    from ..report import predicted

    output.check_writable(out)
    found = api.calibrate(runs, constants=constants)
    failed = written(out, found.write, "constants ")
    output.give(found.to_json(), predicted.calibrated(found), failed, as_json=as_json)
