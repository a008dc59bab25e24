"""Plans written for other tools, after a check that the tool can express them."""

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from ... import formats
from ...errors import InstanceError, Unsupported
from ...plans import TrainingPlan
from ...problems import Evaluation, training_plan
from ...problems.training_plan import models, support, targets
from ...problems.training_plan.shapes import features
from ...schema import Instance
from ...schema.targets import TARGETS, Feature
from ...search import choices
from ...text.documents import Document
from ...text.writing import writable
from ..contract import Held
from ..importing import typed
from .launching import bad_hosts, bad_parts

#: Targets that take devices of any maker; what others start asks for CUDA or ROCm.
ANY_MAKER = ("flagscale", "skypilot", "slurm")
#: Targets that grant the GPUs of one type of a machine with several; others number all.
BY_TYPE = ("slurm",)


class Target(NamedTuple):
    """A target is an exporter with all its parts, defaults among them.

    `rules` is the target of `TARGETS` whose plans it takes, or its own name; it has
    no files for the features `without`.
    """

    name: str
    export: Callable[..., dict[str, str]]
    refusals: Callable[[Instance, TrainingPlan], list[str]]
    options: Document
    rules: str
    without: frozenset[Feature]
    held: Held


def target_named(name: str) -> Target:
    """Return the target of a name; `UnknownName` lists what there is."""
    module, own = formats.exporter(name), name.replace("-", "_")
    return Target(
        own,
        module.export,
        getattr(module, "refusals", lambda data, plan: []),
        getattr(module, "OPTIONS", {}),
        getattr(module, "RULES", own),
        getattr(module, "WITHOUT", frozenset()),
        getattr(module, "HELD", Held(own)),
    )


def names() -> list[str]:
    """Return the targets, sorted."""
    return list(formats.exporters())


def reasons(target: str, data: Instance, plan: TrainingPlan) -> list[str]:
    """Return why `target` cannot take a plan; none where it can.

    Raises `UnknownName` for a target that is not there.
    """
    return _reasons(target_named(target), data, plan)


def _reasons(target: Target, data: Instance, plan: TrainingPlan) -> list[str]:
    name, ruled = target.rules, []
    data, asked = data.launched_by(name), data
    foreign = targets.foreign(data, _types(data, plan))
    cards = [] if target.name in ANY_MAKER else foreign
    if name in TARGETS:
        # What a target says of its own takes for granted that it has the features.
        if why := targets.lacking(name, data, plan, target.without):
            return [*cards, *why]
        degrees = targets.bad_degrees(name, data, plan)
        ruled = targets.without_precision(data, _types(data, plan))
        ruled += [f"tensor-parallel degree {text}" for text in degrees]
        ruled += targets.refusals(name, data, plan)
        ruled += models.unfit(name, data)
        if data is not asked and any(
            violation.rule == "memory"
            for violation in training_plan.evaluate(data, plan).violations
        ):
            ruled.append(f"{name} keeps fp32 gradients, for which there is no memory")
    own = target.refusals(*choices.settled(data, plan))
    parts = [] if target.name in BY_TYPE else bad_parts(data, plan)
    return [*bad_hosts(plan), *parts, *cards, *ruled, *own]


def _types(data: Instance, plan: TrainingPlan) -> list[str]:
    node = data.planned_cluster.node
    return sorted({node[replica.node].gpu for replica in plan.replicas()})


def explain(data: Instance, plan: TrainingPlan) -> list[Document]:
    """Return one row a target: the plan's features that it has or lacks, its reasons.

    `unsupported` is what the target lacks for any plan of the instance.
    """
    used = features(data, plan)
    rows = []
    for target in map(target_named, names()):
        on = target.rules if target.rules in TARGETS else "any"
        supports = TARGETS[on].supports - target.without
        rows.append(
            {
                "name": target.name,
                "tool": target.held.tool,
                "oldest": target.held.oldest,
                "held_against": list(target.held.held),
                "features": {
                    str(one.value): one in supports for one in Feature if one in used
                },
                "unsupported": "; ".join(support.lacking(data.on(on))) or None,
                "reasons": _reasons(target, data, plan),
            }
        )
    return rows


def export_plan(
    name: str, data: Instance, plan: TrainingPlan, options: Iterable[str] = ()
) -> dict[str, str]:
    """Return the texts for a target by file name; `options` are its own `name=value`.

    Raises `InstanceError` for a plan that the judge refuses, `Unsupported` for one
    that the target cannot express, with every reason, `UnknownName` for an option that
    the target has not.
    """
    target = target_named(name)
    told = typed(target.options, options)
    support.require(data)
    refuse_broken(training_plan.evaluate(data, plan))
    if why := _reasons(target, data, plan):
        raise Unsupported(_refusal(name, target.rules, data, why))
    data, plan = choices.settled(data.launched_by(target.rules), plan)
    return target.export(data, plan, **told)


def refuse_broken(found: Evaluation) -> None:
    """Raise `InstanceError` where the judge says that a plan breaks rules."""
    if broken := found.violations:
        listed = "; ".join(map(str, broken[:5]))
        raise InstanceError(f"the plan breaks rules and cannot be exported: {listed}")


def _refusal(target: str, rules: str, data: Instance, why: list[str]) -> str:
    """Return a message of the reasons; another plan helps where they blame the plan."""
    other = "choose another target (hetopt export --explain)"
    told = "; ".join(why)
    if rules not in TARGETS:
        return f"not supported by {target}: {told}; {other} or another plan"
    if support.lacking(data.on(rules)):
        return f"not supported by {TARGETS[rules].program}: {told}; {other}"
    remedy = f"another plan (hetopt plan --for {rules})"
    return f"not supported by {target}: {told}; {other} or {remedy}"


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
                _move(draft, place, files)
            else:
                draft.rename(place)
    finally:
        rmtree(draft, ignore_errors=True)
    return [out / file for file in sorted(files)]


def _move(draft: Path, place: Path, files: Iterable[str]) -> None:
    """Let files take the places of those before them; refused before the first."""
    for file in sorted(files):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        if (place / file).is_dir():
            raise IsADirectoryError(None, f"{file} is a folder there")
    for file in sorted(files):
        (draft / file).replace(place / file)
