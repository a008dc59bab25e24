"""Options that many commands have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Unsupported
from .quantities import count, duration, memory, share

if TYPE_CHECKING:
    from ..modelling import Limits


def opt(value: str | None, help: str, *names: str, **about: Any) -> Any:
    """Return an option: what stands for its value in the help, and what it says."""
    return typer.Option(*names, metavar=value, help=help, **about)


def pairs(help: str) -> Any:
    """Return the option of `NAME=VALUE` words."""
    return opt("NAME=VALUE", help, "--option", "-o")


def flag(help: str, *names: str, **about: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar="", help=help, **about)


def arg(help: str, value: str | None = None, **about: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=value, help=help, **about)


InstanceWord = Annotated[str, arg("A path, or a name of `hetopt list instances`.")]
PlanFile = Annotated[str, arg("A plan file, or a result document.")]
PlanInstance = Annotated[
    str | None, opt("INSTANCE", "The instance, if not the plan's own.")
]
AnyModel = Annotated[
    str, arg("A preset such as gpt2-7b, a config.json, or an instance.")
]
Problem = Annotated[
    str | None,
    opt("NAME", "A problem derived from the instance: `hetopt list problems`."),
]
TimeLimit = Annotated[
    float,
    duration(
        "S",
        "Wall-clock limit: seconds, or 5min; reading the file counts. `inf`: none; 0: "
        "only quick arithmetic, no search.",
    ),
]
Work = Annotated[
    int | None,
    opt(
        "N",
        "Limit the work, not the time: N candidates of searches, boxes of proofs and "
        "steps of planners; then the same seed gives the same plan and bound. "
        "--time-limit counts only where it is given, too.",
        min=0,
    ),
]
Gap = Annotated[float | None, share("G", "Stop at this gap: 1%, or 0.01.")]
Threads = Annotated[int, opt("N", "Threads of a solver.", min=1)]
Seed = Annotated[
    int, opt("N", "Same seed, same plan, unless a time limit ends the search.", min=0)
]
OldPlan = Annotated[str, arg("The old plan: a plan file or result document.")]
OldInstance = Annotated[
    str | None, opt("INSTANCE", "The old instance, if not the old plan's own.")
]
Replanners = Annotated[
    str | None,
    opt(
        "A,B,C",
        "Re-plan with these planners; default: all, as in `hetopt plan`.",
        "--planner",
    ),
]
ReplanningTime = Annotated[
    float, duration("S", "Time for re-planning, in seconds.", "--planning")
]
HorizonSeconds = Annotated[
    float,
    duration(
        "S",
        "Expected time until the next change: seconds, or 2h; `inf`: never.",
        "--horizon",
    ),
]
StorageWords = Annotated[
    list[str] | None,
    pairs(
        "media (disk, memory or both), unsaved (nodes), disk_gbytes_per_s, "
        "memory_gbytes_per_s, network_gbytes_per_s, cloud_gbytes_per_s (none: no "
        "cloud), cloud_limit (shared, each_node), loads (each_gpu, once_a_node), "
        "bytes_per_parameter."
    ),
]
PlannersSeed = Annotated[int, opt("N", "Seed of the planners.", "--seed", min=0)]
RunsOn = Annotated[
    str | None,
    opt(
        "TARGET",
        "Only plans that this target can run: megatron, megatron_bridge, torchtitan, "
        "deepspeed, transformers, llamafactory, flagscale, hexiscale, executor "
        "(`hetopt run`), architecture (all that the model's architecture allows), or "
        "any.",
        "--for",
    ),
]
Memory = Annotated[
    float | None,
    memory(
        "GIB",
        "Memory of this process, in GiB or as 512MiB, at which a proof stops with what "
        "it has.",
    ),
]
Start = Annotated[list[str] | None, opt("FILE", "Also start from this plan.")]
Fresh = Annotated[bool, flag("Ignore the library's best plan and bound.", "--fresh")]
Known = Annotated[
    bool,
    flag(
        "Let the exact method and the portfolio start from the library's best. "
        "Their rows are marked.",
        "--known",
    ),
]
AsJson = Annotated[
    bool, flag("Print one JSON document on stdout, errors included.", "--json")
]
Options = Annotated[
    list[str] | None, pairs("An option of the planner: `hetopt list planners`.")
]
MethodOptions = Annotated[
    list[str] | None,
    pairs(
        "An option of the problem, the method or the planner: `hetopt list problems`, "
        "`methods`, `planners`. A record is given as JSON, or as a file with its "
        "fields."
    ),
]
ProblemOptions = Annotated[
    list[str] | None, pairs("An option of the problem: `hetopt list problems`.")
]
Out = Annotated[
    Path | None, opt("FILE", "Write the result: a plan file, or a page (.html).")
]

Tokens = Annotated[
    int | None,
    count(
        "N",
        "Tokens of the whole run, such as 15T; shows its duration, cost and energy.",
    ),
]
Report = Annotated[
    Path | None, opt("FILE", "Write a .html, .md, .csv or .json report.")
]
OutTree = Annotated[Path | None, opt("FILE", "Write a .yaml or .json file.")]


def limits(context: typer.Context) -> "Limits":
    """The limits of a command; by default no time limit where work is limited."""
    from ..modelling import Limits

    told = context.params
    time_s, work, gib = told["time_limit"], told.get("work"), told.get("memory")
    source = context.get_parameter_source("time_limit")
    if work is not None and source is not None and source.name == "DEFAULT":
        time_s = float("inf")
    mib = None if gib is None else max(1, round(gib * 1024))
    threads, seed = told.get("threads", 1), told.get("seed", 0)
    return Limits(time_s, told.get("gap"), threads, seed, mib, work)


def limit_s(seconds: float | None) -> float | None:
    """A time limit, or None where it is `inf`."""
    return None if seconds == float("inf") else seconds


def named(words: str | None, option: str) -> list[str] | None:
    """Names that commas separate, or None where the option is not given."""
    return None if words is None else listed(words, option)


def listed(words: str, option: str) -> list[str]:
    """Names that commas separate."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise Unsupported(f"{option} {words!r}: expected names separated by commas")
    return names


def sizes(words: str, option: str = "--micro-batches") -> list[int]:
    """The sizes, from 1 on, that commas separate."""
    names = listed(words, option)
    if not all(word.isdecimal() and int(word) for word in names):
        fault = "expected whole numbers from 1 on, separated by commas"
        raise Unsupported(f"{option} {words!r}: {fault}")
    return [*map(int, names)]
