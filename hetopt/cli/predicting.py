"""The commands about measured runs, registered by `hetopt.cli`."""

from pathlib import Path
from typing import Annotated

import typer

from . import output
from .options import AsJson
from .output import written

_CONSTANTS = typer.Option(
    metavar="FILE",
    help="Constants written by `hetopt calibrate` or `hetopt profile`; they take "
    "precedence over the shipped ones.",
)
Constants = Annotated[Path | None, _CONSTANTS]
Configs = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The model's config.json, or the trainer's own configuration.",
    ),
]
Told = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="Values that the files lack: gpu, "
        "vocabulary, nodes, seq, zero, recompute "
        "...",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(predict)
    app.command()(calibrate)


def predict(
    runs: Annotated[
        Path, typer.Argument(help="Measured runs: rows as JSON or CSV, or a log.")
    ],
    constants: Constants = None,
    config: Configs = None,
    told: Told = None,
    fit_on: Annotated[
        Path | None,
        typer.Option(metavar="RUNS", help="Fit constants to these runs first."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with measured runs, row by row.

    Time per iteration with an 80% interval, memory of the fullest GPU and whether it
    fits; or why the model cannot express a run.

    Examples: `hetopt predict runs.json`; `hetopt predict train.log -o gpu=a100_80gb`,
    as a log seldom names its GPUs.
    """
    from .. import api
    from ..report import predicted

    beside = _beside(config, told)
    found = api.predict(runs, constants=constants, fit_on=fit_on, **beside)
    output.give(found.to_json(), predicted.terminal(found), as_json=as_json)


def calibrate(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Your runs: rows as JSON or CSV, or trainers' logs."),
    ] = None,
    machine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Operators that SimuMax measured on the card: its system file.",
        ),
    ] = None,
    constants: Constants = None,
    config: Configs = None,
    told: Told = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the constants to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the cost model's constants to your own measured runs.

    The fit starts from the shipped constants, or those of `--constants`, and changes
    only what the runs determine. Each run is also predicted from the others. Operators
    of a machine change the card's own constants first, or by themselves.

    Examples: `hetopt calibrate runs.csv --out constants.json`; `hetopt calibrate
    --machine b200.json -o gpu=B200-180GB --out constants.json`
    """
    from .. import api
    from ..report import predicted

    output.check_writable(out)
    beside = _beside(config, told)
    found = api.calibrate(runs or (), constants=constants, machine=machine, **beside)
    failed = written(out, found.write, "constants ")
    output.give(found.to_json(), predicted.calibrated(found), failed, as_json=as_json)


def _beside(config: list[Path] | None, told: list[str] | None) -> dict[str, object]:
    """Return what is told beside files of runs, by the names that the API has."""
    from ..text.options import pairs

    fields: dict[str, object] = {**pairs(told or ())}
    return fields | ({"configs": config} if config else {})
