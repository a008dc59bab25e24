"""Options that many commands have."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..errors import Unsupported
from .quantities import count, duration, memory, share

# A flag takes no value: nothing stands for one in the help.
flag = partial(typer.Option, metavar="")

InstanceWord = Annotated[
    str, typer.Argument(help="A path, or a name of `hetopt list instances`.")
]
Problem = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The problem that the instance poses: `hetopt list problems`.",
    ),
]
TimeLimit = Annotated[
    float,
    duration(
        metavar="S",
        help="Wall seconds, or 5min, reading the file included; `inf`: no limit, 0: "
        "only what arithmetic tells at once.",
    ),
]
Gap = Annotated[
    float | None,
    share(metavar="G", help="Stop at this gap: 1%, or 0.01."),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        "--workers",
        min=1,
        metavar="N",
        help="Threads of a solver, processes of a proof.",
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Prove on this Dask scheduler's workers, in place of --workers.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Same seed, same plan.")]
OldPlan = Annotated[
    str, typer.Argument(help="The plan before: a plan file or result document.")
]
OldInstance = Annotated[
    str | None,
    typer.Option(metavar="INSTANCE", help="The old plan's, if not its own."),
]
Replanners = Annotated[
    str | None,
    typer.Option(
        "--planner",
        metavar="A,B,C",
        help="Re-plan with these; by default all, as `hetopt plan`.",
    ),
]
ReplanningTime = Annotated[
    float,
    duration("--planning", metavar="S", help="Seconds to re-plan in."),
]
HorizonSeconds = Annotated[
    float | None,
    duration(
        "--horizon",
        metavar="S",
        help="Seconds, or 2h, until the next change, 1 h by default; `inf`.",
    ),
]
HorizonIterations = Annotated[
    int | None,
    count(
        "--iterations",
        least=0,
        metavar="N",
        help="Iterations until then, in place of seconds.",
    ),
]
StorageWords = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="media (disk, memory or both), unsaved (nodes), disk_gbytes_per_s, "
        "memory_gbytes_per_s, network_gbytes_per_s, cloud_gbytes_per_s (none: no "
        "cloud), cloud_limit (shared, each_node), loads (each_gpu, once_a_node), "
        "bytes_per_parameter.",
    ),
]
PlannersSeed = Annotated[
    int, typer.Option("--seed", min=0, metavar="N", help="Of the planners.")
]
RunsOn = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TARGET",
        help="Plans that this can run: megatron, megatron_bridge, torchtitan, "
        "deepspeed, flagscale, galvatron, hexiscale, sailor, executor (hetopt run: "
        "every shape), "
        "architecture (all that it allows), or any.",
    ),
]
Memory = Annotated[
    float | None,
    memory(
        metavar="GIB",
        help="GiB, or 512MiB, that this process may hold before a proof ends with what "
        "it has.",
    ),
]
Start = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Start from this plan, too; those beside the instance are starts already.",
    ),
]
Fresh = Annotated[
    bool,
    flag(
        "--fresh",
        help="Nothing that is known counts: no plan beside the instance, and not the "
        "library's best.",
    ),
]
AsJson = Annotated[
    bool,
    flag("--json", help="One JSON document on stdout, an error too, nothing else."),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the planner: `hetopt list planners`.",
    ),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the problem, the method or the planner: `hetopt list "
        "problems`, `methods`, `planners`. A record is given as JSON, or as a file of "
        "its fields.",
    ),
]
ProblemOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the problem: `hetopt list problems`.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result document, a plan file too."),
]

OutTree = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a .yaml or .json file.")
]


def limit_mib(gib: float | None) -> int | None:
    """A limit of memory in MiB; None where there is none."""
    return None if gib is None else max(1, round(gib * 1024))


def limit_s(seconds: float) -> float | None:
    """A time limit, or None where it is `inf`."""
    return None if seconds == float("inf") else seconds


def listed(words: str, option: str = "--planners") -> list[str]:
    """Names that commas separate."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise Unsupported(f"{option} {words!r}: expected names separated by commas")
    return names
