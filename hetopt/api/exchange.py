"""Instances of others' files, plans for others' tools; plans explained, simulated."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from .. import capability, explaining, formats
from ..errors import Unsupported, naming
from ..explaining import simulator
from ..findings import Entries, Finding
from ..formats import assembling, exporting, importing
from ..formats.importing import Imported
from ..formats.importing.assumptions import Assumption
from ..plans import PostTraining, TrainingPlan
from ..schema import Instance
from ..text.documents import Document
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyPlan,
    AnyProblem,
    AnyProgress,
    Place,
    Words,
    limits_of,
    progress_of,
    words_of,
)
from .judging import claimed, load, no_plan_is_shorter, posed_plan, posed_training
from .starts import known_of

if TYPE_CHECKING:
    from ..explaining.timeline import Schedule


class Assembled(Finding, Instance, layout="listing.assumed"):
    """An instance made of others' files, with all that they do not say."""

    _made: Imported = PrivateAttr()

    @classmethod
    def of(cls, made: Imported) -> "Assembled":
        """Return the instance of what was imported; `InstanceError` where none is."""
        data = load(made.document)
        found = cls.model_construct(data.model_fields_set, **dict(data))
        found._made = made
        return found

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """What was taken for granted, and what changes it."""
        return self._made.assumed

    def to_json(self) -> Document:
        """The instance's document, with `assumed`."""
        return self._made.to_json()

    def write(self, path: Place) -> None:
        """Write the instance as a .yaml or .json file."""
        self._made.write(path)


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
    options: Words | None = None,
) -> Assembled:
    """Return an instance made of a model's config.json and lists of hosts.

    What was taken for granted is listed in its `assumed`, with what changes it, and is
    what `print` shows.
    `config` is a file or a model's name in the catalogue; `hosts` are files of a
    `format` (`hetopt list formats`). `islands` are hosts joined by a faster network,
    such as `a100-*=400Gb/s`; `options` those of `hetopt assemble -o`, by name. Raises
    `InstanceError` for files that cannot be used, `UnknownName`, `Unsupported`.
    """
    files = [hosts] if isinstance(hosts, str | Path) else hosts
    listed = assembling.Listed(format, [*map(Path, files)], islands)
    workload = {"sequence_length": sequence_length, "global_batch": global_batch}
    work: Document = {**workload, "micro_batch_sizes": [*micro_batches]}
    given = Path(config), listed, words_of(options), work, name, times
    return Assembled.of(assembling.assembly(*given))


def import_file(
    format: str,
    paths: Place | Iterable[Place] = (),
    *,
    instance: Place | None = None,
    options: Words | None = None,
) -> Imported:
    """Return what another tool's files say as a document of ours.

    `format` is one of `hetopt list formats`, `options` are its own. With an `instance`
    (a name or a path) what was read is put into it; plans are read against it. Raises
    `UnknownName` and `InstanceError` for what cannot be read.
    """
    files = [paths] if isinstance(paths, str | Path) else paths
    where = None if instance is None else str(instance)
    asked = format, [*map(Path, files)], words_of(options), where
    return importing.imported(*asked)


def export(
    plan: AnyPlan,
    to: str,
    out: Place,
    *,
    instance: AnyProblem | None = None,
    options: Words | None = None,
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
        with naming(plan):
            texts = exporting.export_plan(to, data, made, words_of(options))
    return exporting.write(Path(out), texts)


def runners(plan: AnyPlan, instance: AnyProblem | None = None) -> Entries:
    """Say which targets of `export` can run a training plan, and what others lack.

    There is a row for each target: `features` that it has, `unsupported`, `reasons`.
    Raises what `simulate` raises.
    """
    with naming(plan):
        rows = exporting.explain(*posed_training(plan, instance))
    return Entries("runners", tuple(rows))


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
    with naming(plan):
        return simulator.simulate(*posed_training(plan, instance), schedule)


def explain(
    plan: AnyPlan,
    instance: AnyProblem | None = None,
    *,
    known: bool = True,
    limits: AnyLimits = 60,
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
    with naming(plan):
        found = explaining.explain(data, made, limits_of(limits), heard, others)
    bounds = starts.bound(data), no_plan_is_shorter(data), claimed(plan, data)
    least = (x for x in bounds if x is not None and x.value <= found.iteration_us)
    return replace(found, bound=max(least, key=lambda x: x.value, default=None))


def capabilities(instance: AnyInstance | None = None) -> Entries:
    """Return which method carries which setting, with one row per method.

    A row has `name`, `kind`, `description`, and `carries`: by setting how it is carried
    (`exactly`, `in part`, `not`) and the reason. With an `instance` they are of the
    settings for which it asks. Raises what `load` raises.
    """
    rows = capability.rows(None if instance is None else load(instance))
    return Entries("capabilities", tuple(rows))
