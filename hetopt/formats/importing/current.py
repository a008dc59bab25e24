"""The plan of a current run: a grid of ranks, on the hosts in their order."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from ...errors import InstanceError, UnknownName
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...problems.training_plan import targets
from ...schema import Instance, Recompute, Split, Workload
from ...schema.fields import ONE
from ...schema.groups import FIELDS
from ...text.documents import Fields
from ...trainers.megatron.stages import in_runs
from .calibrating import run_as_asked
from .placing import Claim, Settings


class RunAs(NamedTuple):
    """A run is one of a trainer, timed as a framework runs it.

    `told` are fields of a calibration, as the files tell them.
    """

    trainer: str
    framework: str
    told: Fields = MappingProxyType({})


class Share(NamedTuple):
    """A share holds a replica's own sequences, micro-batches, recomputation."""

    samples: int
    micro_batches: int
    recompute: Recompute


class Layout(NamedTuple):
    """A layout tells a trainer its ranks: stages, replicas, tensor-parallel ranks.

    `layers` are the numbers of layers of the stages, `samples` the sequences of a
    micro-batch of one replica. `degree` are the GPUs of a replica: its tensor-parallel
    ranks times those among which it divides sequences. `tells_layers` says whether the
    run itself divides the layers. `parts` are the layers of each virtual stage in the
    order of the model, where they are not as `in_runs` has them. `shares` are the
    replicas' own, where each is told one.
    """

    layers: tuple[int, ...]
    replicas: int
    degree: int
    samples: int
    micro_batches: int
    recompute: Recompute
    zero: int
    split: Split = ONE
    tells_layers: bool = False
    parts: tuple[int, ...] | None = None
    shares: tuple[Share, ...] = ()

    def share(self, replica: int) -> Share:
        """Return what one of the replicas has."""
        if self.shares:
            return self.shares[replica]
        return Share(self.samples, self.micro_batches, self.recompute)

    @property
    def settings(self) -> Settings | None:
        """Return the layout as settings, with the layers of stages where known.

        None where each replica is told its own: there is no one setting.
        """
        if self.shares:
            return None
        context, experts, runs, groups = self.split
        return Settings(
            tensor_parallel=self.degree // context,
            pipeline_parallel=len(self.layers),
            context_parallel=context,
            expert_parallel=experts,
            interleave=runs,
            zero_groups=groups,
            micro_batch_size=self.samples,
            recompute=self.recompute,
            zero=self.zero,
            layers=self.layers if self.tells_layers else None,
        )


def gpus(data: Instance, hosts: str) -> list[str]:
    """Return the GPUs of the hosts that are named, else of all, as ranks take them.

    A GPU may be named as well, such as `n1:3`.
    """
    node = data.planned_cluster.node
    own = {
        name: [f"{name}:{i}" for i in range(one.count)] for name, one in node.items()
    }
    own |= {gpu: [gpu] for those in own.values() for gpu in those}
    names = [name.strip() for name in hosts.split(",")] if hosts else list(node)
    for name in names:
        if name not in own:
            raise UnknownName("host", name, list(node))
    return [gpu for name in names for gpu in own[name]]


def same_world(values: Fields, ranks: list[str], place: str) -> None:
    """`InstanceError` where a launcher starts another number of processes than GPUs.

    Hosts of different numbers of GPUs have commands that differ, of which one says
    nothing of the others.
    """
    # The last flag of the launcher has the program behind its value.
    told = {k.replace("_", "-"): f"{v} ".split(" ")[0] for k, v in values.items()}
    each, hosts = (told.get(name, "") for name in ("nproc-per-node", "nnodes"))
    counts = Counter(rank.rpartition(":")[0] for rank in ranks)
    if not re.fullmatch(r"[0-9]{1,6}", each) or len({*counts.values()}) != 1:
        return
    if not re.fullmatch(r"[0-9]{1,6}", hosts):  # not told: on every host
        hosts = str(len(counts))
    if int(each) * int(hosts) != len(ranks):
        raise InstanceError(
            f"{place}: hosts x processes of each: found {hosts} x {each} processes, "
            f"expected {len(ranks)}, the GPUs of the hosts; assemble an instance of "
            "the run's hosts, or name them (hosts=A,B)"
        )


def replicas_of(ranks: int, others: int, place: str) -> int:
    """Return the number of replicas that the ranks leave, a whole number."""
    if not others or ranks % others:
        raise InstanceError(
            f"{place}: found {ranks} GPUs, expected a multiple of stages x "
            f"GPUs of a replica = {others}; name the hosts of the run (hosts=A,B)"
        )
    return ranks // others


def divisors(number: int) -> list[int]:
    """Return the whole numbers that divide one, from the least."""
    return [one for one in range(1, number + 1) if number % one == 0]


def cut(
    parts: Sequence[int], stages: int, layers: int, place: str, mtp: int = 0
) -> tuple[tuple[int, ...], int, tuple[int, ...] | None]:
    """Layers of each stage, its runs, and the parts of the model where unequal.

    The first run of every stage comes first, then the second of every stage. Layers
    that predict further tokens, `mtp`, are beside the equal ones of the last part.
    """
    runs, over = divmod(len(parts), stages)
    if over or sum(parts) != layers:
        raise InstanceError(
            f"{place}: found {sum(parts)} layers in {len(parts)} parts, expected "
            f"{layers} in {stages}, or in a multiple of it; correct it"
        )
    held = tuple(sum(parts[stage::stages]) for stage in range(stages))
    equal = in_runs((*held[:-1], held[-1] - mtp), runs)
    equal[-1] += mtp
    return held, runs, None if all(parts) and [*parts] == equal else tuple(parts)


def same(place: str, found: Fields, expected: Fields) -> None:
    """`InstanceError` where a run is of another model or batch than the instance."""
    for name, value in found.items():
        if value is not None and value != expected[name]:
            raise InstanceError(
                f"{place}: {name}: found {value}, expected {expected[name]} as the "
                "instance has it; assemble one of the run's model and batch"
            )


def same_sizes(
    place: str, data: Instance, batch: tuple[str, int], length: tuple[str, int]
) -> None:
    """`InstanceError` where a step, or a sequence, has another size by its name."""
    own = data.workload.global_batch, data.workload.sequence_length
    same(place, dict((batch, length)), {batch[0]: own[0], length[0]: own[1]})


def same_adapters(
    rank: str | int | None, data: Instance, place: str, bits: int | None = None
) -> None:
    """`InstanceError` where a run trains adapters and the instance not, or others.

    `rank` is that of the run's adapters; None: it trains all weights. `bits` are those
    of frozen weights, where they are quantised.
    """
    lora = data.workload.costs.updates.lora
    own = None if lora is None else (lora.rank, lora.weight_bits)
    told = None if rank is None else (int(rank), bits)
    if told == own:
        return
    words = [
        "all weights" if one is None else
        f"adapters of rank {one[0]}" + (f" on {one[1]}-bit weights" if one[1] else "")
        for one in (told, own)
    ]  # fmt: skip
    kind = "full" if told is None else "lora" if told[1] is None else "qlora"
    remedy = f"-o finetune={kind}" + ("" if told is None else f" -o rank={told[0]}")
    if bits == 8:
        remedy += ", and write weight_bits: 8 next to the rank in its file"
    raise InstanceError(
        f"{place}: what is trained: found {words[0]}, expected {words[1]} as the "
        f"instance has it; assemble one with {remedy}"
    )


def same_optimiser(
    rule: tuple[str, str | None],
    data: Instance,
    place: str,
    title: str,
    *,
    hosted: bool = False,
) -> None:
    """`InstanceError` where another optimiser updates weights, or elsewhere.

    `rule` is the optimiser as a file tells it, and by our name, None for one that is
    not known; `hosted` says that its states are on hosts.
    """
    (told, known), memory = rule, data.workload.costs.memory
    if known != memory.optimiser:
        remedy = "the memory of others is unknown"
        if known is not None:
            remedy = f"assemble one with -o optimiser={known}"
        raise InstanceError(
            f"{place}: {title}: found {told}, expected {memory.optimiser} as in the "
            f"instance; {remedy}"
        )
    if hosted != memory.hosts_update:
        found, own = ("on hosts", "on GPUs")[:: 1 if hosted else -1]
        raise InstanceError(
            f"{place}: optimiser states: found {found}, expected {own} as in the "
            f"instance; assemble one {'with' if hosted else 'without'} -o "
            "offload=optimiser"
        )


def claim_of(
    layout: Layout,
    ranks: list[str],
    data: Instance,
    place: str,
    by: RunAs,
    notes: Sequence[str] = (),
) -> Claim:
    """The run as a claim: its plan, and the instance with the settings that it has.

    Where the program that the instance names runs no such plan, it is judged as one of
    the trainer that does. It is timed and weighed as the run's framework does, whatever
    the instance says, which is told where it is another. Raises `InstanceError` for a
    setting that the instance cannot weigh.
    """
    offering, missing = _offering(layout, data, place)
    offering = run_as_asked(offering, by.framework, layout.zero, by.told)
    if (precision := data.workload.costs.memory.precision) is not None:
        offering = offering.in_precision(precision)  # as read, whatever `runs_on` has
    plan = _plan_of(layout, ranks, offering)
    if missing:
        told = ", ".join(missing)
        notes = [*notes, f"judged with {told}, which the instance does not offer"]
    timed, said = (x.workload.costs.compute.calibration for x in (offering, data))
    if timed is not None and said is not None and timed.framework != said.framework:
        ours = f"not of the instance's {said.framework}"
        files = f"time and memory are those of {timed.framework}, whose file it is"
        notes = [*notes, f"{files}, {ours}"]
    own = offering.workload.runs_on
    if next(targets.broken(offering, plan), None) is not None:
        offering = offering.on(by.trainer)
        what = f"checked against the limits of {by.trainer}: {own} cannot run it"
        if by.trainer == "architecture":
            what = (
                "this trainer has no export target: checked against the model's "
                "limits only"
            )
        notes = [*notes, what]
    return Claim(1, plan, None, offering, tuple(notes), layout.settings)


def _plan_of(layout: Layout, ranks: list[str], data: Instance) -> TrainingPlan:
    """The plan, a pipeline for each replica, as micro-batches are a replica's."""
    costs = data.workload.costs
    zero = None if layout.zero == costs.updates.zero else layout.zero
    stages, runs = len(layout.layers), layout.parts or layout.layers
    spans = [*pairwise(accumulate(runs, initial=0))]
    pipelines = []
    for replica in range(layout.replicas):
        samples, micro_batches, rule = layout.share(replica)
        made = []
        for stage in range(stages):
            own = tuple(spans[stage::stages])
            first = (stage * layout.replicas + replica) * layout.degree
            gpus = tuple(ranks[first : first + layout.degree])
            one = Stage(
                layers=(own[0][0], own[-1][1]),
                replicas=(Replica(gpus=gpus, samples=samples),),
                recompute=None if rule == costs.compute.recompute else rule,
                runs=own if len(own) > 1 else None,
            )
            made.append(one)
        told = {"micro_batches": micro_batches, "micro_batch_size": samples}
        pipelines.append(Pipeline(**told, stages=tuple(made)))
    chosen = {
        name: value
        for name, value, usual in zip(FIELDS, layout.split, costs.split, strict=True)
        if value != usual
    }
    return TrainingPlan(pipelines=tuple(pipelines), zero=zero, **chosen)


def _offering(layout: Layout, data: Instance, place: str) -> tuple[Instance, list[str]]:
    """The instance that offers what the run has, and what it did not, in words."""
    workload = data.workload
    shares = [layout.share(replica) for replica in range(layout.replicas)]
    asked: list[tuple[str, object]] = [
        *(("recompute", share.recompute) for share in shares),
        ("zero", layout.zero),
        *zip(FIELDS, layout.split, strict=True),
        *(("micro_batch_sizes", share.samples) for share in shares),
    ]
    missing = []
    for name, value in dict.fromkeys(asked):
        if value in offered(workload, name):
            continue
        fields = {x: getattr(workload, x) for x in workload.model_fields_set}
        if name == "micro_batch_sizes":
            fields[name] = (*workload.micro_batch_sizes, value)
        else:
            other = workload.alternatives
            more = (*getattr(other, name), value)
            fields["alternatives"] = other.model_copy(update={name: more})
        try:
            workload = Workload.model_validate(fields)
        except ValidationError as error:
            why = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            values = ",".join(map(str, (*offered(workload, name), value)))
            is_size = name == "micro_batch_sizes"
            option = f"--micro-batches {values}" if is_size else f"-o {name}={values}"
            raise InstanceError(
                f"{place}: the run has {name} {value}, which the instance does not "
                f"offer and cannot weigh: {why}; assemble it with {option}"
            ) from None
        missing.append(f"{name} {value}")
    if layout.parts is not None and workload.costs.schedule.layout != "told":
        costs = workload.costs.model_copy(update={"layout": "told"})
        workload = workload.model_copy(update={"costs": costs})
        missing.append("layout told")
    return data.model_copy(update={"workload": workload}), missing


def offered(workload: Workload, name: str) -> tuple[Any, ...]:
    """Return the values of a setting that plans of the workload may have."""
    if name == "micro_batch_sizes":
        return workload.micro_batch_sizes
    own, other = workload.costs.value(name), getattr(workload.alternatives, name)
    return tuple(dict.fromkeys((own, *other)))
