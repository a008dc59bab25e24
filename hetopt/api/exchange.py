"""Instances made of others' files, plans for others' tools, and plans pass by pass."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..explaining import simulator
from ..formats import assembling, exporting
from ..schema import Instance
from ..text.documents import Document
from .calling import AnyPlan, AnyProblem, Options, Place
from .judging import load, posed_training

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
    workload: Document = {
        "sequence_length": sequence_length,
        "global_batch": global_batch,
        "micro_batch_sizes": [*micro_batches],
    }
    words = _words(options)
    return load(
        assembling.assembly(Path(config), listed, words, workload, name, times).document
    )


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


def _words(options: Options | None) -> list[str]:
    """Return options as the command line has them."""
    return [f"{name}={value}" for name, value in (options or {}).items()]
