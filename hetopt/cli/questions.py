"""The commands that answer a question, its answer being the first line of output."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import Unsupported
from . import output
from .options import AsJson, flag, limit_s, listed
from .quantities import duration, length

if TYPE_CHECKING:
    from ..api.fitting import Fitting

#: How a model is trained on machines that are named: as in `assemble`.
Trained = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="As in `assemble`: finetune (full, lora, qlora), precision, recompute, "
        "zero, optimiser, offload, runs_on, inter_gbytes_per_s ...",
    ),
]
Limit = Annotated[
    float,
    duration(metavar="S", help="Wall seconds, or 5min, for all that is asked."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(fit)


def fit(
    model: Annotated[
        str, typer.Argument(help="A preset such as gpt2-7b, a config.json, an instance")
    ],
    batch: Annotated[
        int | None,
        length(metavar="B", help="Sequences a step; the instance's, or 64."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="C", help="The cluster of this instance or queue."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="GPUs by name, of which the fewest are found: A100-40G,RTX2080Ti; or "
            "so many: 8xA100-40G.",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        length(
            metavar="S",
            help="Tokens of a sequence, as 4096 or 4Ki; the instance's, or 1024.",
        ),
    ] = None,
    longest: Annotated[
        bool, flag("--longest", help="Find the longest context that fits, too.")
    ] = False,
    option: Trained = None,
    time_limit: Limit = 20.0,
    as_json: AsJson = False,
) -> None:
    """Say whether a model fits, with what margin, and how many GPUs it needs.

    With pipelines, ZeRO, recomputation and LoRA, as `plan` has them; what does not fit
    is proved, where it can be. An instance is asked about its own GPUs. Below stands
    what Frenzy's MARP says, which knows data and tensor parallelism alone.

    Examples: `hetopt fit gpt2-7b --gpus A100-40G,RTX2080Ti --batch 2`;
    `hetopt fit my-cluster.yaml --longest`;
    `hetopt fit config.json --gpus RTX4090 -o finetune=lora`
    """
    from .. import api, catalogue
    from ..report import fitting

    if cluster is not None and gpus is not None:
        raise Unsupported("found both of --cluster and --gpus: give one of them")
    if cluster is None and gpus is None and model in catalogue.models():
        raise Unsupported(
            "found neither of --cluster and --gpus: give one of them, or an instance, "
            "whose GPUs are meant"
        )
    if option and gpus is None:
        raise Unsupported("-o says how models are trained on --gpus: give these, too")
    found = api.fit(
        model,
        cluster if gpus is None else listed(gpus, "--gpus"),
        batch,
        sequence,
        longest=longest,
        options=option or (),
        limits=limit_s(time_limit),
    )
    if not found.complete:
        output.complain("interrupted: this is what was known by then")
    document = found.to_json() | {"answer": fitting.answer(found)}
    output.give(document, fitting.terminal(found), as_json)
    raise typer.Exit(_exit(found))


def _exit(found: "Fitting") -> int:
    """0 where it fits anywhere, 3 where it is proved that it does not."""
    if found.marp or any(one.fits for one in found.verdicts):
        return output.PLAN
    proved = all(one.status.value == "infeasible" for one in found.verdicts)
    return output.NO_PLAN if proved else output.NOT_FOUND
