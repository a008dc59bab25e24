"""Plans written for other tools, after a check that the tool can express them."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from shutil import rmtree
from typing import Any

from ... import formats
from ...errors import InstanceError, Unsupported
from ...plans import TrainingPlan
from ...problems import training_plan
from ...problems.training_plan import models, support, targets
from ...problems.training_plan.shapes import features
from ...schema import Instance
from ...schema.targets import TARGETS, Feature
from ...search import choices
from ...text.writing import writable
from ..importing import typed
from ..versions import HELD
from .launching import bad_hosts, bad_parts

#: Targets that take devices of any maker; what others start asks for CUDA or ROCm.
ANY_MAKER = ("flagscale", "skypilot", "slurm")
#: Targets that grant the GPUs of one type of a machine with several; others number all.
BY_TYPE = ("slurm",)


def names() -> list[str]:
    """The targets, sorted."""
    return list(formats.exporters())


def reasons(target: str, data: Instance, plan: TrainingPlan) -> list[str]:
    """Why `target` cannot take a plan; none where it can.

    Raises `UnknownName` for a target that is not there.
    """
    exporter: Any = formats.exporter(target)
    name, ruled = _rules(target), []
    data, asked = data.launched_by(name), data
    cards = [] if name in ANY_MAKER else targets.foreign(_types(data, plan))
    if name in TARGETS:
        # What a target says of its own takes for granted that it has the features.
        if why := targets.lacking(name, data, plan, _without(target)):
            return [*cards, *why]
        degrees = targets.bad_degrees(data, plan)
        ruled = targets.without_precision(data, _types(data, plan))
        ruled += [f"tensor-parallel degree {text}" for text in degrees]
        ruled += targets.refused(name, data, plan)
        ruled += models.unfit(name, data)
        if data is not asked and _lacks_memory(data, plan):
            ruled.append(
                f"{name} keeps gradients of four bytes, for which there is no memory"
            )
    own: list[str] = []
    if hasattr(exporter, "refusals"):
        own = exporter.refusals(*choices.settled(data, plan))
    parts = [] if name in BY_TYPE else bad_parts(data, plan)
    return [*bad_hosts(plan), *parts, *cards, *ruled, *own]


def _lacks_memory(data: Instance, plan: TrainingPlan) -> bool:
    broken = training_plan.evaluate(data, plan).violations
    return any(violation.rule == "memory" for violation in broken)


def _rules(target: str) -> str:
    """The target of `TARGETS` whose plans an exporter takes, or its own name."""
    name = target.replace("-", "_")
    return str(getattr(formats.exporter(target), "RULES", name))


def _without(target: str) -> frozenset[Feature]:
    """What an exporter has no files for of the features of that target."""
    exporter: Any = formats.exporter(target)
    found: frozenset[Feature] = getattr(exporter, "WITHOUT", frozenset())
    return found


def _types(data: Instance, plan: TrainingPlan) -> list[str]:
    node = data.planned_cluster.node
    return sorted({node[replica.node].gpu for replica in plan.replicas()})


def explained(data: Instance, plan: TrainingPlan) -> list[dict[str, Any]]:
    """One row a target: the plan's features that it has or lacks, and its reasons.

    `unsupported` is what the target lacks for any plan of the instance.
    """
    used = features(data, plan)
    rows = []
    for target in names():
        rules = _rules(target)
        on = rules if rules in TARGETS else "any"
        supports = TARGETS[on].supports - _without(target)
        held = HELD[target]
        rows.append(
            {
                "name": target,
                "tool": held.tool,
                "oldest": held.oldest,
                "held_against": list(held.held),
                "features": {
                    str(one.value): one in supports for one in Feature if one in used
                },
                "unsupported": "; ".join(support.lacking(data.on(on))) or None,
                "reasons": reasons(target, data, plan),
            }
        )
    return rows


def exported(
    target: str, data: Instance, plan: TrainingPlan, options: Iterable[str] = ()
) -> dict[str, str]:
    """The texts for `target` by file name; `options` are its own, as `name=value`.

    Raises `InstanceError` for a plan that the judge refuses, `Unsupported` for one
    that the target cannot express, with every reason, `UnknownName` for an option that
    the target has not.
    """
    exporter: Any = formats.exporter(target)
    told = typed(getattr(exporter, "OPTIONS", {}), options)
    support.require(data)
    if broken := training_plan.evaluate(data, plan).violations:
        listed = "; ".join(map(str, broken[:5]))
        raise InstanceError(f"the plan cannot be exported, it breaks rules: {listed}")
    if why := reasons(target, data, plan):
        raise Unsupported(_refused(target, data, why))
    data, plan = choices.settled(data.launched_by(_rules(target)), plan)
    files: dict[str, str] = exporter.export(data, plan, **told)
    return files


def _refused(target: str, data: Instance, why: list[str]) -> str:
    """A message of the reasons; another plan helps where they blame the plan."""
    name, other = _rules(target), "choose another target (hetopt export --explain)"
    told = "; ".join(why)
    if name not in TARGETS:
        return f"{target} cannot run this plan: {told}; {other} or another plan"
    if support.lacking(data.on(name)):
        return f"not supported by {TARGETS[name].program}: {told}; {other}"
    remedy = f"another plan (hetopt plan --for {name})"
    return f"{target} cannot run this plan: {told}; {other} or {remedy}"


def write(out: Path, files: dict[str, str]) -> list[Path]:
    """Write texts into a folder, all of them or none.

    They go to a folder that takes the name when it is whole. Of a folder that is there
    already, the files of these names are replaced, once all are on the disk. Scripts,
    whose first line names a program, can be executed by whoever can read them.
    """
    place = Path(os.path.realpath(out))
    with writable(out):
        there = place.is_dir() and any(place.iterdir())
        place.parent.mkdir(parents=True, exist_ok=True)
    name = f".export.{secrets.token_hex(6)}.tmp"
    draft = place / name if there else place.with_name(name)
    try:
        for file in sorted(files):
            with writable(out / file):
                (draft / file).parent.mkdir(parents=True, exist_ok=True)
                (draft / file).write_text(files[file], encoding="utf-8")
                if files[file].startswith("#!"):
                    mode = (draft / file).stat().st_mode
                    (draft / file).chmod(mode | (mode & 0o444) >> 2)
        with writable(out):
            if there:
                _put(draft, place, files)
            else:
                draft.rename(place)
    finally:
        rmtree(draft, ignore_errors=True)
    return [out / file for file in sorted(files)]


def _put(draft: Path, place: Path, files: Iterable[str]) -> None:
    """Let files take the places of those before them; refused before the first."""
    for file in sorted(files):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        if (place / file).is_dir():
            raise IsADirectoryError(None, f"{file} is a folder there")
    for file in sorted(files):
        (draft / file).replace(place / file)
