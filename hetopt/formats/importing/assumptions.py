"""Importers assume these values where no file has them, each with its source.

An importer hands its rows on as `assumed`, beside `cluster` or `offers`: what it is,
the value, where it is from, and the option that changes it. `card` says what holds for
the GPUs of a cluster and for offers alike; `training` for how a model is trained on
them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...catalogue import Gpu, generation, reserve
from ...errors import InstanceError
from ...schema.targets import TARGETS, Feature
from ...schema.widths import launched_precision
from ...text.documents import Document, Fields

#: Options of how the model is trained; a list of values is a choice of the plan.
OPTIONS: Document = {
    "precision": str,
    "flash": bool,
    "sequence_parallel": bool,
    "recompute": str,
    "zero": str,
    "zero_groups": str,
    "runs_on": str,
}
SHARE = "share of the peak of "
#: What may run the plan unless it is told, the freest first.
_RUNNERS = ("executor", "megatron", "torchtitan", "architecture")
_RUNS = "what runs the plan"
_DEGREES = {
    "context_parallel": Feature.CONTEXT_PARALLEL,
    "expert_parallel": Feature.EXPERT_PARALLEL,
    "zero_groups": Feature.ZERO_GROUPS,
}
_STAGES = {2: Feature.ZERO_2, 3: Feature.ZERO_3}
RULES, ZEROS = ("full", "selective", "none"), (1, 0)


class Assumption(NamedTuple):
    """One thing that was taken for granted, in words."""

    what: str
    value: str
    source: str
    change: str


class Assumed(NamedTuple):
    """A card is assumed to reach a share of its peak, with memory for tensors."""

    efficiency: float
    memory_gib: float
    rows: tuple[Assumption, ...]


def card(
    name: str,
    gpu: Gpu | None,
    total_mib: int,
    efficiency: float | None,
    reserve_mib: int | None,
    place: str,
) -> Assumed:
    """Return the assumptions about a card; the file told what is not None.

    `gpu` is None for a card that is known by its figures alone. GiB are rounded down
    to thousandths. Raises `InstanceError` with `place` where no memory is left.
    """
    rows = []
    if efficiency is None:
        known = generation(gpu)
        efficiency = known.efficiency
        about = f"{SHARE}{name}"
        rows.append(
            Assumption(about, f"{efficiency:g}", known.source, "-o efficiency=X")
        )
    kept = reserve().of(total_mib) if reserve_mib is None else reserve_mib
    left = (total_mib - kept) * 1000 // 1024 / 1000
    if left <= 0:
        raise InstanceError(
            f"{place}: found {total_mib} MiB of {name!r} and a reserve of {kept} MiB, "
            "expected some left; give -o reserve_mib=N"
        )
    if reserve_mib is None:
        value = f"{left:.1f} of {total_mib / 1024:.1f} GiB"
        about, change = room_of(name), "-o reserve_mib=N"
        rows.append(Assumption(about, value, reserve().source, change))
    return Assumed(efficiency, left, tuple(rows))


def room_of(name: str) -> str:
    """Return the subject of a row about a card's memory."""
    return f"memory of {name} for tensors"


def training(
    cards: Mapping[str, Gpu | None], options: Fields
) -> tuple[Document, tuple[Assumption, ...]]:
    """The workload's fields of how it is trained on these cards, what is assumed.

    These are `costs`, `alternatives` and `runs_on`.

    `options` are those of `OPTIONS` that were told, typed.
    """
    costs: Document = {}
    rows = []

    def settle(field: str, value: Any, why: str, change: str) -> None:
        if (told := options.get(field)) is None:
            shown = {True: "on", False: "off"}.get(value, str(value))
            rows.append(Assumption(field.replace("_", " "), shown, why, change))
        costs[field] = value if told is None else told

    told = options.get("precision")
    _can_train_in(told, cards)
    sixteen = ("", "") if told is not None else _sixteen_bits(cards)
    settle("precision", *sixteen, "-o precision=NAME")
    kernels = "FlashAttention, or PyTorch's memory-efficient attention"
    settle("flash", True, kernels, "-o flash=false")
    usual = "usual where there is tensor parallelism"
    settle("sequence_parallel", True, usual, "-o sequence_parallel=false")
    chosen: Document = {}
    offers: dict[str, tuple[Any, ...]] = {"recompute": RULES, "zero": ZEROS}
    for field, values in offers.items():
        told = options.get(field)
        first, *others = values if told is None else choices(field, told)
        costs[field] = first
        if others:
            chosen[field] = [first, *others]
        if told is None:
            change = f"-o {field}={','.join(map(str, values[:2]))}"
            shown = " / ".join(map(str, values))
            rows.append(Assumption(field, shown, "chosen by the planner", change))
    if (told := options.get("zero_groups")) is not None:
        costs["zero_groups"], *others = choices("zero_groups", told)
        if others:
            chosen["zero_groups"] = others
    made: Document = {"costs": costs, "runs_on": options.get("runs_on")}
    if made["runs_on"] is None:
        made["runs_on"] = target = _target(options)
        why = "degrees divide the heads; stages may have any shape"
        if target != _RUNNERS[0]:
            why = "divides sequences, experts or weights as requested"
        change = "-o runs_on=megatron, or plan --for megatron"
        rows.append(Assumption(_RUNS, target, why, change))
    if options.get("precision") is None:
        rows[0] = _wider_row(costs, str(made["runs_on"]), rows[0])
    return made | ({"alternatives": chosen} if chosen else {}), tuple(rows)


def runner(
    workload: Document,
    lacking: Iterable[str],
    able: Sequence[str],
    rows: Iterable[Assumption],
) -> tuple[Document, tuple[Assumption, ...]]:
    """The workload's fields and rows where who was to run it is `lacking` features.

    Nobody is, then: `architecture` has every one. `able` are the programs that have
    them, for some plans.
    """
    last, words = _RUNNERS[-1], ", ".join(lacking)
    why = f"{workload['runs_on']} has no {words}"
    change = f"plan --for {', '.join(able)}" if able else "no program has all of it"
    kept = (
        row._replace(value=last, source=why, change=change)
        if row.what == _RUNS
        else row
        for row in rows
    )
    return workload | {"runs_on": last}, tuple(kept)


def _wider_row(costs: Document, target: str, row: Assumption) -> Assumption:
    """The row of the precision, which becomes the one that the target launches."""
    precision = launched_precision(target, costs["precision"])
    if precision == costs["precision"]:
        return row
    costs["precision"] = precision
    return row._replace(value=str(precision), source=f"{target} sums gradients in fp32")


def _target(options: Fields) -> str:
    """The first program that divides weights, sequences and experts as it is told."""
    asked = set()
    for field, degree in (("zero", 1), *((field, 1) for field in _DEGREES)):
        told = str(options.get(field) or degree).split(",")
        if all(word.isdigit() and int(word) > degree for word in told):
            stage = min(map(int, told))
            asked.add(_DEGREES.get(field) or _STAGES.get(stage))
    return next(name for name in _RUNNERS if TARGETS[name].supports >= asked - {None})


def _can_train_in(precision: str | None, cards: Mapping[str, Gpu | None]) -> None:
    """Raise `InstanceError` for half precision on cards whose sheets do not have it."""
    without = [name for name, gpu in cards.items() if gpu and not gpu.has_fp16]
    if without and precision is not None and precision.startswith("fp16"):
        raise InstanceError(
            f"option precision: found {precision!r}, and the data sheet of "
            f"{', '.join(without)} has no fp16; give bf16_mixed"
        )


def _sixteen_bits(cards: Mapping[str, Gpu | None]) -> tuple[str, str]:
    """The precision that all cards have, and why; `InstanceError` if there is none."""
    without = [name for name, gpu in cards.items() if gpu and not gpu.has_bf16]
    only = [name for name, gpu in cards.items() if gpu and not gpu.has_fp16]
    if without and only:
        raise InstanceError(
            f"found no bf16 on {', '.join(without)} and no fp16 on {', '.join(only)} "
            "by their data sheets, expected 16 bits that all have; leave some out"
        )
    if without:
        return "fp16_mixed", f"no bf16 on {', '.join(without)}"
    unknown = [name for name, gpu in cards.items() if gpu is None]
    if unknown:
        return "bf16_mixed", f"assumed for {', '.join(unknown)}"
    return "bf16_mixed", "all cards have bf16"


def choices(field: str, told: str) -> list[object]:
    """Return `full,none` as values; what they may be, the schema says."""
    words: Iterable[str] = [word.strip() for word in told.split(",")]
    return [int(w) if field != "recompute" and w.isdecimal() else w for w in words]
