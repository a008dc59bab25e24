"""Instances of others' files, plans for others' tools; plans explained, simulated."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import capability, explaining, formats
from ..errors import Unsupported
from ..explaining import simulator
from ..formats import assembling, exporting
from ..plans import PostTraining, TrainingPlan
from ..schema import Instance
from ..text.documents import Document
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyPlan,
    AnyProblem,
    AnyProgress,
    Options,
    Place,
    limits_of,
    progress_of,
)
from .judging import load, no_plan_is_shorter, posed_plan, posed_training
from .starts import known_of

if TYPE_CHECKING:
    from ..explaining.timeline import Schedule


def assemble(
    config: Place,
    hosts: Place | Iterable[Place],
    *,
    global_batch: int,
    sequence_length: int,
    format: str = "auto",
    micro_batches: Sequence[int] = (1,),
    islands: Iterable[str] = (),
    name: str | None = None,
    times: str = "calibrated",
    options: Options | None = None,
) -> Instance:
    """Return an instance made of a model's config.json and lists of hosts.

    `config` is a file or a model's name in the catalogue; `hosts` are files of a
    `format` (`hetopt list formats`). `islands` are hosts joined by a faster network,
    such as `a100-*=400Gb/s`; `options` those of `hetopt assemble -o`, by name. Raises
    `InstanceError` for files that cannot be used, `UnknownName`, `Unsupported`.
    """
    files = [hosts] if isinstance(hosts, str | Path) else hosts
    listed = assembling.Listed(format, [*map(Path, files)], islands)
    workload = {"sequence_length": sequence_length, "global_batch": global_batch}
    work: Document = {**workload, "micro_batch_sizes": [*micro_batches]}
    given = Path(config), listed, _words(options), work, name, times
    return load(assembling.assembly(*given).document)


def export(
    plan: AnyPlan,
    to: str,
    out: Place,
    *,
    instance: AnyProblem | None = None,
    options: Options | None = None,
) -> list[Path]:
    """Write a plan for the tool that runs it, and return the files.

    `to` is a target of `hetopt list formats`; `options` are its own. Raises
    `Unsupported` for what the tool cannot express, with every reason.
    """
    _, data, made = posed_plan(plan, instance)
    if isinstance(made, PostTraining):
        if options:
            raise Unsupported(f"{to} takes no options, found {', '.join(options)}")
        texts = formats.placed(to, data, made)
    else:
        if not isinstance(made, TrainingPlan):
            data, made = posed_training(plan, instance)
        texts = exporting.export_plan(to, data, made, _words(options))
    return exporting.write(Path(out), texts)


def simulate(
    plan: AnyPlan,
    instance: AnyProblem | None = None,
    *,
    schedule: "Schedule | None" = None,
) -> simulator.Simulation:
    """Simulate a plan pass by pass: its time, bubbles and idle time.

    `schedule` is the instance's by default. Raises `InstanceError` for a plan that
    cannot be timed.
    """
    data, made = posed_training(plan, instance)
    return simulator.simulate(data, made, schedule)


def explain(
    plan: AnyPlan,
    instance: AnyProblem | None = None,
    *,
    known: bool = True,
    limits: AnyLimits = None,
    progress: AnyProgress = None,
) -> explaining.Explanation:
    """Explain where the time and memory of a training plan go, and what would help.

    Changes of hardware, settings and plan are judged and planned again within `limits`
    (0 leaves them out); without a limit the same seed gives the same answer. Planning
    starts from this plan or from the library's best; with `known` false only from this
    one. `plan` and `instance` are as in `check`. Raises
    `InstanceError` for a plan that cannot be timed and `Unsupported` for a plan of
    another problem.
    """
    data, made = posed_training(plan, instance)
    starts = known_of(data, library=known)
    others = [(one.source, one.plan, one.objective) for one in starts.starts(data)]
    heard = progress_of(progress).started
    found = explaining.explain(data, made, limits_of(limits), heard, others)
    return replace(found, bound=starts.bound(data) or no_plan_is_shorter(data))


def capabilities(instance: AnyInstance | None = None) -> list[dict[str, object]]:
    """Return which method carries which setting, with one row per method.

    A row has `name`, `kind`, `description`, and `carries`: by setting how it is carried
    (`exactly`, `in part`, `not`) and the reason. With an `instance` they are of the
    settings for which it asks. Raises what `load` raises.
    """
    return capability.rows(None if instance is None else load(instance))


def _words(options: Options | None) -> list[str]:
    return [f"{name}={value}" for name, value in (options or {}).items()]
