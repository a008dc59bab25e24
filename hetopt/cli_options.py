"""Options that many commands have."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

# A flag takes no value: nothing stands for one in the help.
flag = partial(typer.Option, metavar="")

InstanceWord = Annotated[
    str, typer.Argument(help="A path, or a name of `hetopt list instances`.")
]
TimeLimit = Annotated[
    float,
    typer.Option(min=0, metavar="S", help="Wall seconds; `inf` for no limit."),
]
Gap = Annotated[
    float | None,
    typer.Option(min=0, metavar="G", help="Stop at this gap; 0.01 is 1 %."),
]
Threads = Annotated[int, typer.Option(min=1, metavar="N", help="Threads of a solver.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Same seed, same plan.")]
AsJson = Annotated[
    bool, flag("--json", help="One JSON document on stdout, nothing else.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result document, a plan file too."),
]
