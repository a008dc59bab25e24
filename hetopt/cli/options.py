"""Options that many commands have."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..errors import Unsupported
from .quantities import duration, memory, share

# A flag takes no value: nothing stands for one in the help.
flag = partial(typer.Option, metavar="")

InstanceWord = Annotated[
    str, typer.Argument(help="A path, or a name of `hetopt list instances`.")
]
PlanFile = Annotated[str, typer.Argument(help="A plan file, or a result document.")]
PlanInstance = Annotated[
    str | None,
    typer.Option(metavar="INSTANCE", help="The instance, if not the plan's own."),
]
AnyModel = Annotated[
    str,
    typer.Argument(help="A preset such as gpt2-7b, a config.json, or an instance."),
]
Problem = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A problem derived from the instance: `hetopt list problems`.",
    ),
]
TimeLimit = Annotated[
    float,
    duration(
        metavar="S",
        help="Wall-clock limit: seconds, or 5min; reading the file counts. `inf`: "
        "none; 0: only quick arithmetic, no search.",
    ),
]
Work = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Limit the work, not the time: N candidates of searches, boxes of proofs "
        "and steps of planners; then the same seed gives the same plan and bound. "
        "--time-limit counts only where it is given, too.",
    ),
]
Gap = Annotated[
    float | None,
    share(metavar="G", help="Stop at this gap: 1%, or 0.01."),
]
Threads = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Threads of a solver.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Same seed, same plan, unless a time limit ends the search.",
    ),
]
OldPlan = Annotated[
    str, typer.Argument(help="The old plan: a plan file or result document.")
]
OldInstance = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANCE", help="The old instance, if not the old plan's own."
    ),
]
Replanners = Annotated[
    str | None,
    typer.Option(
        "--planner",
        metavar="A,B,C",
        help="Re-plan with these planners; default: all, as in `hetopt plan`.",
    ),
]
ReplanningTime = Annotated[
    float,
    duration("--planning", metavar="S", help="Time for re-planning, in seconds."),
]
HorizonSeconds = Annotated[
    float,
    duration(
        "--horizon",
        metavar="S",
        help="Expected time until the next change: seconds, or 2h; `inf`: never.",
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
    int, typer.Option("--seed", min=0, metavar="N", help="Seed of the planners.")
]
RunsOn = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TARGET",
        help="Only plans that this target can run: "
        "megatron, megatron_bridge, torchtitan, deepspeed, transformers, llamafactory, "
        "flagscale, hexiscale, executor (`hetopt run`), "
        "architecture (all that the model's architecture allows), or any.",
    ),
]
Memory = Annotated[
    float | None,
    memory(
        metavar="GIB",
        help="Memory of this process, in GiB or as 512MiB, at which a proof stops "
        "with what it has.",
    ),
]
Start = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Also start from this plan.",
    ),
]
Fresh = Annotated[
    bool,
    flag(
        "--fresh",
        help="Ignore the library's best plan and bound.",
    ),
]
Known = Annotated[
    bool,
    flag(
        "--known",
        help="Let the exact method and the portfolio start from the library's best. "
        "Their rows are marked.",
    ),
]
AsJson = Annotated[
    bool,
    flag("--json", help="Print one JSON document on stdout, errors included."),
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
        "problems`, `methods`, `planners`. A record is given as JSON, or as a file "
        "with its fields.",
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
    typer.Option(
        metavar="FILE", help="Write the result document, which is also a plan file."
    ),
]

OutTree = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a .yaml or .json file.")
]


def limit_mib(gib: float | None) -> int | None:
    """A limit of memory in MiB; None where there is none."""
    return None if gib is None else max(1, round(gib * 1024))


def time_s(context: typer.Context, seconds: float) -> float:
    """The time limit of a command, which by default has none where work is limited."""
    source = context.get_parameter_source("time_limit")
    usual = source is not None and source.name == "DEFAULT"
    return float("inf") if usual and context.params["work"] is not None else seconds


def limit_s(seconds: float) -> float | None:
    """A time limit, or None where it is `inf`."""
    return None if seconds == float("inf") else seconds


def listed(words: str, option: str = "--planners") -> list[str]:
    """Names that commas separate."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise Unsupported(f"{option} {words!r}: expected names separated by commas")
    return names
