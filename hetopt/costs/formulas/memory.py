"""Bytes on the fullest GPU of a symmetric run, term by term.

A GPU holds states of its parameters (weights, gradients, optimiser), what the
micro-batches in flight left for their backward passes, what the pass at hand works
with, and what does not come from tensors: the CUDA context, the buffers of
communicators, and what the caching allocator keeps and cannot use. The terms sum to
what `nvidia-smi` shows; `reserved` is what the allocator says of itself.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from ...schema.layers import ATTENDING, DENSE, EXPERTS, MODULE_OF
from ...schema.states import QUANTISED as _QUANTISED
from . import activations, shared
from .activations import logits
from .architecture import Adapters, Architecture, Layer
from .frameworks import DEEPSPEED
from .kernels import ELEMENT, Constants
from .layout import Layout
from .machine import Machine

Terms = Mapping[str, float]

#: Not seen by the allocator of a framework.
OUTSIDE = ("context", "communicators")
#: Lightning Fabric's: FSDP joins what is frozen and adapters in one parameter a layer,
#: all of which has a gradient, and sums those of micro-batches before it divides them.
_JOINED = ("litgpt",)
_BUCKET = 5e8  # elements: DeepSpeed's `reduce_bucket_size` unless told
_SUB_GROUP = 1e9  # elements that ZeRO-3 updates at once: `sub_group_size`
_LIVE = 1e9  # elements: DeepSpeed's `stage3_max_live_parameters` unless told
#: Bytes of a frozen weight by its bits.
QUANTISED = {bits: float(width) for bits, width in _QUANTISED.items()}


class Parameters(NamedTuple):
    """Parameters of one stage on one GPU, before ZeRO or FSDP divide them."""

    dense: float
    experts: float
    ends: float  # embedding and head
    unit: float  # the largest layer
    adapters: float = 0.0  # beside those, which are frozen

    @property
    def all(self) -> float:
        """Return all parameters of the stage."""
        return self.dense + self.experts + self.ends


class States(NamedTuple):
    """Bytes of each parameter; `update` lives only while the optimiser runs."""

    weights: float
    gradients: float
    optimiser: float
    update: float = 0.0


def states(run: Layout) -> States:
    """Return what a framework keeps of each parameter where nothing is divided.

    Mixed precision has a 16-bit weight, a master and two moments of 32 bits. The
    gradient is where frameworks differ: of 16 bits until the optimiser copies it
    (DeepSpeed), of 32 bits in place (Megatron, nanotron, FSDP), or of both (bf16 of
    DeepSpeed without ZeRO, or where it is told to). The copies of an update are flat:
    one as it was summed, one widened, and what PyTorch's AdamW lists of these beside,
    once or, with InternEvo, twice.
    """
    moments = run.moments_bits / 4
    if run.states == "16bit":
        return States(2, 2, min(4, moments))
    if run.states == "fp32":
        return States(4, 4, moments)
    if run.framework == "internevo":
        flat = 4 if run.shard or run.zero == 3 else 6
        return States(2, 2, 4 + moments, update=flat + (8 if run.listed else 0))
    if run.states == "amp" or (run.shard and not of_deepspeed(run)):
        return States(4, 4, moments)
    summed = run.accumulate_fp32 or not run.zero  # by its `BF16_Optimizer`
    if of_deepspeed(run) and summed and run.precision != "fp16":
        return States(2, 6, 4 + moments)
    if of_deepspeed(run):
        # One copy of a gradient in 32 bits, under ZeRO one of 16, too.
        flat = 6 if run.zero else 4
        return States(2, 2, 4 + moments, update=flat + (4 if run.listed else 0))
    return States(2, 4 if run.accumulate_fp32 else 2, 4 + moments)


def of_deepspeed(run: Layout) -> bool:
    """Return whether pipeline and optimiser are DeepSpeed's."""
    return run.framework in DEEPSPEED and run.sharding != "fsdp1"


def spans(a: Architecture, run: Layout) -> list[tuple[Layer, ...]]:
    """The layers of each stage; those left over are with the first ones.

    Embedding and head count as layers where stages are even then and not otherwise.
    """
    if run.stage_layers:
        counts = list(run.stage_layers)
    else:
        most, rest = divmod(len(a.layers), run.pp)
        counts = [most + (j < rest) for j in range(run.pp)]
        if rest and (len(a.layers) + 2) % run.pp == 0:
            counts = [(len(a.layers) + 2) // run.pp] * run.pp
            counts[0] -= 1
            counts[-1] -= 1
    return [a.layers[i:j] for i, j in pairwise(accumulate(counts, initial=0))]


def parameters(
    a: Architecture, run: Layout, layers: tuple[Layer, ...], *, first: bool, last: bool
) -> Parameters:
    """Parameters of a stage on one of its GPUs."""
    dense = experts = unit = adapters = 0.0
    for layer in set(layers):
        every = (m for x in layer for m in a.matrices(x, run.tp, run.experts))
        grouped = sum(m.parameters for m in every if m.routed)
        whole = sum(a.parameters(part, run.tp, run.experts) for part in layer)
        count = layers.count(layer)
        adapters += count * sum(beside(a, run, part).parameters for part in layer)
        dense += count * (whole - grouped)
        experts += count * grouped
        unit = max(unit, whole)
    table = a.vocabulary * a.hidden / run.tp
    ends = table * (first + (last and not (first and a.tied)))
    return Parameters(dense, experts, ends, unit, adapters)


def beside(a: Architecture, run: Layout, part: str) -> Adapters:
    """Return the adapters beside the matrices of a part on one GPU, if it has any."""
    if not run.lora or ("attention" if part in ATTENDING else "mlp") not in run.adapted:
        return Adapters(0, 0.0, 0.0)
    found = a.adapters(part, run.rank, run.tp, run.attended)
    divided = run.ep if part == EXPERTS else 1
    return found._replace(parameters=found.parameters / divided)


def divisors(run: Layout) -> tuple[float, float]:
    """Return among how many GPUs ZeRO or FSDP divide states: all, and of experts.

    Experts have fewer replicas: those that hold the same ones.
    """
    if not (run.zero or run.shard):
        return 1.0, 1.0
    divided = run.shard or run.dp * run.cp
    return divided, run.expert_replicas(divided)


def state_bytes(c: Constants, run: Layout, held: Parameters) -> dict[str, float]:
    """Bytes of weights, gradients and optimiser, as ZeRO or FSDP divide them.

    Beside adapters weights are frozen: of 16 bits, of the width of products that take
    fewer, or of the bits that they are quantised to; adapters have all states. PEFT
    widens to 32 bits what is not quantised (`prepare_model_for_kbit_training`).
    Transformer Engine keeps weights of 8 bits and their transposes beside those of 16,
    unless the latter are not there (`--fp8-param-gather`).
    """
    each = states(run)
    if run.lora:
        each = States(min(each.weights, activations.element(run)), 0, 0)
    zero, full = run.zero, bool(run.shard) or run.zero == 3
    divided, parted = divisors(run)[0], _parted(run, held)
    found = {
        "weights": each.weights * (parted if full else held.all),
        "gradients": each.gradients * (parted if full or zero == 2 else held.all),
        "optimiser": each.optimiser * parted,
        "update": _copied(run, parted),
        "gathered": _gathered(c, run, held),
    }
    if run.quantised_beside and not full:
        each_copy = ELEMENT.get(run.precision, 0.0)
        found["weights"] += 2 * each_copy * (held.dense + held.experts)
    if full and run.framework in _JOINED:
        layers = held.dense + held.experts
        divided_now = divided if run.micro_batches == 1 else 1
        width = each.gradients or activations.element(run)
        found["gradients"] = width * (layers if run.lora else held.all) / divided_now
    if run.states == "amp" and run.recompute != "full":
        found["gathered"] = 2 * (held.all - held.ends / 2)  # casts of autocast
    if run.lora:
        if run.frozen_bits is not None:
            layers = held.dense + held.experts
            if full:
                layers = _parted(run, held._replace(ends=0))
            found["weights"] -= (each.weights - QUANTISED[run.frozen_bits]) * layers
        elif activations.narrow(run) < 2:
            found["weights"] /= 2
        found["weights"] += _widened(run, held)
        own = States(4, 4, 8)  # PEFT has all of an adapter in 32 bits
        if run.framework in ("megatron", "torchtune"):
            own = states(replace(run, lora=False))
        kept = 0.0 if full else own.weights + own.gradients
        share = (own.weights + own.gradients + own.optimiser - kept) / divided
        found["adapters"] = held.adapters * (kept + share)
    if run.updated_at_once:
        found["gradients"] = 0.0
    if "optimizer" in run.hosted:
        found["optimiser"] = found["gradients"] = 0.0
    if "parameters" in run.hosted:
        found["weights"] = 0.0
    return found


def _parted(run: Layout, held: Parameters) -> float:
    divided, fewer = divisors(run)
    return (held.dense + held.ends) / divided + held.experts / fewer


def _copied(run: Layout, parted: float) -> float:
    """Return the bytes of the copies that an update makes of `parted` parameters.

    ZeRO-3 of DeepSpeed makes them of a group of parameters after the other.
    """
    if run.lora or "optimizer" in run.hosted:
        return 0.0
    by_groups = run.zero == 3 and of_deepspeed(run)
    return states(run).update * (min(parted, _SUB_GROUP) if by_groups else parted)


def _listed(run: Layout, parted: float) -> float:
    """Return the bytes of a list of tensors as large as a moment (PyTorch's AdamW).

    Those of flat tensors are among the copies of an update.
    """
    if not run.listed or run.lora or run.hosted or states(run).update:
        return 0.0
    return (2 if run.states == "16bit" else 4) * parted


def updating(run: Layout, parted: float, gathered: float) -> float:
    """Return the bytes of an update of `parted` parameters where passes had theirs.

    Lists are put into blocks of what was gathered, too.
    """
    return _copied(run, parted) + max(0.0, _listed(run, parted) - gathered)


def _gathered(c: Constants, run: Layout, held: Parameters) -> float:
    if not (run.shard or run.zero == 3):
        return 0.0
    if run.pp > 1:  # a pipeline gathers once for all micro-batches, reduces once
        return (2 + states(run).gradients) * held.all
    ends = held.ends if run.framework == "torchtitan" else held.ends / 2
    units = c("memory.units", run.framework) * held.unit
    if run.frozen_bits is not None:  # gathered as they are, widened one by one
        units *= QUANTISED[run.frozen_bits] / 2
    together = units + ends
    return 2 * (min(together, _LIVE) if of_deepspeed(run) else together)


def leaving(a: Architecture, run: Layout, held: Parameters) -> float:
    """Gradients where a backward pass is at, before they are divided.

    FSDP has those of a layer, of 16 bits and as summed; DeepSpeed that of a matrix, and
    of one that is on its way. A quantised matrix, which has none, is widened for every
    product with it.
    """
    if run.lora and run.frozen_bits is not None:
        mlps = {part for layer in a.kinds for part in layer} & {DENSE, EXPERTS}
        both = max((n * k for n, k in shapes(a, run, [tuple(mlps)])), default=0.0)
        return activations.element(run) * both / (2 if a.gated else 1)
    if not (run.shard or run.zero == 3) or run.pp > 1 or run.lora:
        return 0.0
    if not of_deepspeed(run):
        return (4 if run.states == "16bit" else 6) * held.unit
    parts = {part for layer in a.kinds for part in layer}
    every = (m for part in parts for m in a.matrices(part, run.tp, run.experts))
    return 2 * 2 * max(m.parameters for m in every)


def _buckets(a: Architecture, run: Layout) -> float:
    """Gradients on their way; under ZeRO-3 what the Trainer and scripts ask for.

    InternEvo flattens half a Gi of elements while as many are summed.
    """
    full = run.shard or run.zero == 3
    if run.framework == "internevo" and (run.dp > 1 or run.zero) and not full:
        return 2 * 2 * (run.bucket or 2**29)
    if not (of_deepspeed(run) and run.zero):
        return 0.0
    if run.zero == 3:  # a matrix's worth, to reduce and to gather
        matrix = min(_BUCKET, a.hidden**2)
        return 2 * ((run.bucket or matrix) + matrix)
    return 2 * run.buckets * (run.bucket or _BUCKET)


def _widened(run: Layout, held: Parameters) -> float:
    """Return what PEFT adds to embedding and head beside quantised weights.

    They have 32 bits, and the head a copy by autocast.
    """
    if run.frozen_bits is None or run.framework != "trainer":
        return 0.0
    divided = divisors(run)[0] if run.shard or run.zero == 3 else 1
    return held.ends * (2 / divided + activations.widened(run))


def undivided(
    c: Constants, a: Architecture, run: Layout, held: Parameters
) -> tuple[float, float]:
    """Return what is beside states: gathered weights; buckets, what is widened."""
    return _gathered(c, run, held), _buckets(a, run) + _widened(run, held)


Shapes = frozenset[tuple[float, float]]


def shapes(a: Architecture, run: Layout, layers: Iterable[Layer]) -> Shapes:
    """Return the shapes of the matrices of layers on one GPU."""
    parts = {part for layer in layers for part in layer}
    matrices = (m for part in parts for m in a.matrices(part, run.tp, run.experts))
    return frozenset((m.n, m.k) for m in matrices)


def stand_ins(
    c: Constants, a: Architecture, run: Layout, of: Shapes, *, last: bool
) -> float:
    """Return the bytes of gradients that stand in for those summed in place.

    Where a product adds its gradient to the sum itself, autograd still wants one:
    Transformer Engine keeps an empty one of 16 bits for each shape of a matrix, and the
    head makes one as wide.
    """
    if run.framework != "megatron" or run.lora:
        return 0.0
    table = a.vocabulary * a.hidden / run.tp if last else 0.0
    return 2 * c("memory.stand_ins") * (sum(n * k for n, k in of) + table)


def of_stage(
    c: Constants, machine: Machine, a: Architecture, run: Layout, stage: int
) -> Terms:
    """Bytes on a GPU of one stage by term."""
    layers = spans(a, run)[stage]
    first, last = stage == 0, stage == run.pp - 1
    held = parameters(a, run, layers, first=first, last=last)
    found = state_bytes(c, run, held)
    found["buckets"] = _buckets(a, run)
    act = activations.of_stage(c, a, run, layers)
    flight = float(shared.in_flight(run.micro_batches, run.pp, stage, run.vp))
    found["activations"] = flight * (act.held + passed_on(a, run))
    found["activations"] *= 1 - run.hosted_layers
    found["working"] = act.working + leaving(a, run, held)
    found["stand-ins"] = stand_ins(c, a, run, shapes(a, run, layers), last=last)
    if last:
        found["working"] = max(found["working"], activations.head(c, a, run))
    if run.states == "amp" and run.recompute == "full" and run.style == "eager":
        # Autocast's copies live until the forward pass ends, when logits want two
        # bytes less than in the backward pass.
        copies = 2 * (held.all - held.ends / 2)
        found["gathered"] = max(0.0, copies - 2 * logits(a, run))
    if run.micro_batches == 1 and run.states in ("amp", "16bit"):
        # Gradients appear as activations and casts of weights go.
        free = found["activations"] + found["working"] + found["gathered"]
        found["gradients"] = max(0.0, found["gradients"] - free)
    # Lists of tensors are put into blocks that passes leave, and casts.
    left = found["activations"] + found["working"] + found["gathered"]
    found["optimiser"] += max(0.0, _listed(run, _parted(run, held)) - left)
    found["fragments"] = c("memory.fragments", run.framework) * sum(found.values())
    found["cuts"] = cuts(c, a, run) if last else 0.0
    # Blocks of shorter lengths, which do not serve the longest.
    each = c("memory.fragments.again", run.framework, "ragged") if run.ragged else 0.0
    found["lengths"] = each * found["working"]
    # As measured, the number of groups and of their members does not show in it.
    found["communicators"] = _communicators(c, machine) if run.gpus > 1 else 0.0
    found["context"] = c("memory.context", machine.generation, run.framework)
    return found


def cuts(c: Constants, a: Architecture, run: Layout) -> float:
    """Return the bytes of large blocks that are too short for logits.

    What lives on is put into blocks that a first pass leaves: where little is kept,
    those of the logits, which want new ones from then on.
    """
    whole = run.recompute in ("full", "block", "ops")
    if not whole and {*MODULE_OF.values()}.isdisjoint(run.modules):
        return 0.0
    return c("memory.fragments.again", run.framework) * activations.head(c, a, run)


def passed_on(a: Architecture, run: Layout) -> float:
    """Return what a stage sent on: DeepSpeed keeps it, Megatron frees it."""
    if run.pp == 1 or not of_deepspeed(run):
        return 0.0
    return 2 * run.micro_batch * run.sequence / run.cp * a.hidden


def wanted(c: Constants, machine: Machine, a: Architecture, run: Layout) -> Terms:
    """Bytes by term that the fullest GPU would take of a card without end.

    Only stages that can be the fullest are looked at: the ends, and those with more
    layers than all before them, as fewer micro-batches are in flight further on.
    """
    counts = [len(span) for span in spans(a, run)]
    if len(a.kinds) > 1:
        stages = list(range(run.pp))
    else:
        stages = [j for j in range(run.pp) if counts[j] > max(counts[:j], default=-1)]
        stages = sorted({*stages, run.pp - 1})
    found = [of_stage(c, machine, a, run, stage) for stage in stages]
    return max(found, key=lambda terms: sum(terms.values()))


def spare(c: Constants, found: Terms) -> dict[str, float]:
    """Bytes by term that an allocator in need does without.

    An update finds room where activations were; of what it cannot use, the allocator
    can give back a share, but no block of which a part is in use.
    """
    passes = found["activations"] + found["working"]
    return {
        "update": min(found["update"], passes),
        "fragments": c("memory.recoverable") * found["fragments"],
        "lengths": found["lengths"],  # free whole
    }


def usable(c: Constants, machine: Machine) -> float:
    """Bytes of a card that a process can have."""
    return machine.memory_gib * 2**30 * c("memory.usable")


def room(c: Constants, machine: Machine, framework: str, *, alone: bool) -> float:
    """Bytes of a card for what a plan weighs, so that runs live: see `fits`.

    The context, communicators (of none, where the GPU is `alone`), what the allocator
    cannot use and the model's own error are taken off.
    """
    most = usable(c, machine) * math.exp(-c("memory.margin"))
    return (most - _outside(c, machine, framework, alone=alone)) / _lost(c, framework)


def needed_beside(
    c: Constants, machine: Machine, framework: str, weighed: float, *, alone: bool
) -> float:
    """Return the bytes that a run needs of which a plan weighs so many: as `room`."""
    return weighed * _lost(c, framework) + _outside(c, machine, framework, alone=alone)


def _outside(c: Constants, machine: Machine, framework: str, *, alone: bool) -> float:
    found = c("memory.context", machine.generation, framework)
    return found if alone else found + _communicators(c, machine)


def _communicators(c: Constants, machine: Machine) -> float:
    """Return the bytes of NCCL's buffers; a bus has two to four channels, not 24."""
    joined = "links" if machine.linked else "bus"
    return c("memory.communicators", machine.generation, joined)


def _lost(c: Constants, framework: str) -> float:
    """Return bytes that the allocator takes of each that is weighed, at the least."""
    return 1 + c("memory.fragments", framework) * (1 - c("memory.recoverable"))


def squeezed(c: Constants, machine: Machine, found: Terms) -> Terms:
    """The terms as they show: spare bytes are used only while the card has them."""
    excess = sum(found.values()) - usable(c, machine)
    shown = dict(found)
    for name, most in spare(c, found).items():
        less = min(most, max(0.0, excess))
        shown[name] -= less
        excess -= less
    return shown


def peak(c: Constants, machine: Machine, a: Architecture, run: Layout) -> Terms:
    """Bytes on the fullest GPU by term; they sum to what `nvidia-smi` shows."""
    return squeezed(c, machine, wanted(c, machine, a, run))


def reserved(found: Terms) -> float:
    """Bytes that the framework's allocator says it has."""
    return sum(x for name, x in found.items() if name not in OUTSIDE)


def allocated(found: Terms) -> float:
    """Bytes of tensors at the peak, of passes or of the update."""
    passes = found["activations"] + found["working"]
    beside = sum(found[name] for name in ("fragments", "cuts", "lengths"))
    return reserved(found) - beside - min(found["update"], passes)


def needed(c: Constants, found: Terms) -> float:
    """Bytes of those `wanted` without which the run dies."""
    return sum(found.values()) - sum(spare(c, found).values())


def died(c: Constants, machine: Machine, a: Architecture, run: Layout) -> float:
    """Return the chance that the run dies of memory."""
    return chance_of(c, machine, needed(c, wanted(c, machine, a, run)))


#: Chances that a run dies of memory: below the first it fits, from the second on it
#: does not, and is tight in between.
TIGHT, TOO_MUCH = 0.05, 0.5


def fit(chance: float) -> str:
    """Return how a run of this chance to die fits, in words."""
    if chance >= TOO_MUCH:
        return "does not fit"
    return "tight" if chance >= TIGHT else "fits"


def chance_of(c: Constants, machine: Machine, need: float) -> float:
    """Return the chance that a GPU dies of which so many bytes are needed.

    The model's log-error of them is normal, of the deviation `memory.margin`.
    """
    over = math.log(max(need, 1.0) / usable(c, machine)) / c("memory.margin")
    return 0.5 * math.erfc(-over / math.sqrt(2))
