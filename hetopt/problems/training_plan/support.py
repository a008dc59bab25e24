"""Decide what a program runs of an instance whatever the plan; it is never a proof.

Where `Unsupported` ends and `infeasible` begins:

* The model, the settings that all plans share, and GPUs of which none will do are asked
  of the program by every plan. If it, or our exporter of it, lacks one of them, the
  request is not supported: an error (`require`), whose words are those of `reason`.
  Nothing is proved by it: another program runs the same plan.
* Shapes of plans (unequal stages, mixed degrees), alternatives that the workload
  offers, and GPUs of which some will do, only narrow the space of plans. Whether a plan
  of that space fits is arithmetic, and `infeasible` is a proof of that space.
"""

from collections.abc import Iterator

from ...errors import Unsupported
from ...schema import Instance
from ...schema.targets import TARGETS
from . import models, settings, shapes, targets

#: Targets that are programs, as `any` and `architecture` are not.
PROGRAMS = tuple(name for name in TARGETS if name not in ("any", "architecture"))


def require(instance: Instance) -> None:
    """Raise `Unsupported` where the program that has to run the plan can run none."""
    if (why := reason(instance)) is not None:
        raise Unsupported(why, field="workload.runs_on")


def reason(instance: Instance) -> str | None:
    """Say why the program runs no plan of the instance, and who does; None if it can.

    Instances that rent their GPUs have no program yet: None.
    """
    if not (lacks := lacking(instance)):
        return None
    others = [name for name in PROGRAMS if not lacking(instance.on(name))]
    remedy = "plan with --for any"
    if others:
        *some, last = others
        listed = f"{', '.join(some)} or {last}" if some else last
        remedy += f", or with --for {listed}"
    program = instance.workload.target.program
    return f"not supported by {program}: {'; '.join(lacks)}; {remedy}"


def lacking(instance: Instance) -> tuple[str, ...]:
    """List what the program lacks of what every plan asks of it, in words."""
    if instance.cluster is None or instance.workload.runs_on == "any":
        return ()
    return tuple(_lacking(instance))


def _lacking(instance: Instance) -> Iterator[str]:
    workload = instance.workload
    name, has = workload.runs_on, workload.target.supports
    types = sorted({node.gpu for node in instance.planned_cluster.nodes})
    bad = [targets.bad_cards(name, instance, [one]) for one in types]
    if all(bad):
        yield from (text for found in bad for text in found)
    yield from models.unfit(name, instance)
    never = shapes.never_run(instance)
    yield from (feature.value for feature in never)
    if never:
        return
    asks = [shapes.of_split(split) - has for split in workload.splits]
    if all(asks):
        fewest = min(asks, key=lambda features: len(features))
        words = " and ".join(sorted(fewest))
        yield f"{words} (offer another way to divide in workload.alternatives)"
    if not settings.state_choices(instance):
        grouped = min(split.groups for split in workload.splits) > 1  # so is ZeRO's
        zero = max(workload.zeros) if grouped else workload.zeros[0]
        rule = workload.recomputes[0]
        asked = shapes.of_choice(zero, rule) | shapes.of_states(workload.costs, zero)
        words = " and ".join(sorted(asked - has))
        yield f"{words} (offer another setting in workload.alternatives)"
