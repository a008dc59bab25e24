"""Memory of one GPU of a stage, term by term, in MiB; each term is rounded up.

    states      = bytes_per_parameter * sum p_l / t, beside adapters the weights alone
                  and bytes_per_parameter of each of theirs, which are cut by t as well
                  (Megatron-Bridge's); with ZeRO its sharded part (1 the
                  optimiser's, 2 gradients too, 3 all) over the n_l replicas of a layer,
                  or of one of its `zero_groups`;
                  of a group of g GPUs with context parallelism c: t = g / c, c n_l
                  replicas; of experts divided among e GPUs: p / e, n_l g / e replicas
    in flight   = min(n, P - j); n (gpipe); 1 (one); with v runs of layers a GPU
                  min(n v, 2 (P - j - 1) + (v - 1) P + 1) / v  (Megatron's order)
    activations = in flight * layers * e b S H (/ t with sequence parallelism)
                  + a layer                                  recompute = full
                = in flight * layers * a layer                          none
                = in flight * layers * a layer without scores, and those of one layer
                                                                        selective
                = the same with what named modules drop            modules (`mlp+moe`)
                = layers * e b S H                           activations: checkpoint
                  of the layers of the stage the one that needs most
    a layer     = b S H (4 e + 2 + 12 e / t + (2 e + 1) a S / (H t)),  e = 2 bytes:
                  b S H (10 + 24 / t + 5 a S / (H t)); selectively recomputed, its first
                  term is divided by t under sequence parallelism
                = of measured runs (`weighing`)            activations: calibrated
                  with ZeRO's gathered weights; needs calibrated times
    head        = states of V H / t and logits (e + 4) b S V / t        (last stage)
    embedding   = states of V H / t                                     (first stage)

With tied embeddings a stage that is first and last holds V H once. Logits count in
their own precision and, for the loss, in single precision: two live copies; once with
`fused_loss`, and with `logit_gradients` the single-precision gradients of the loss too.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm
from typing import NamedTuple

from ..schema import CostSettings, ModelSpec, StateBytes, Workload
from ..schema.groups import modules_of
from ..schema.layers import ATTENDING, DENSE, EXPERTS, FURTHER, MODULE_OF, Parts
from .compute import Share
from .formulas import shared

MIB = 2**20


def mib(number_of_bytes: Fraction | int) -> int:
    """Bytes as MiB, rounded up."""
    return -int(-number_of_bytes // MIB)


class Position(NamedTuple):
    """A stage stands at `j` (from 0) of `stages`, which so many micro-batches pass."""

    micro_batches: int
    stages: int
    j: int

    @property
    def ends(self) -> tuple[bool, bool]:
        """Tell whether the stage is the first, and whether it is the last."""
        return self.j == 0, self.j == self.stages - 1


def in_flight(
    costs: CostSettings, micro_batches: int, stages: int, j: int
) -> int | Fraction:
    """Micro-batches whose activations stage `j` (from 0) of `stages` holds."""
    if costs.schedule.in_flight == "one":
        return 1
    if costs.schedule.in_flight == "gpipe":
        return micro_batches
    return shared.in_flight(micro_batches, stages, j, costs.schedule.interleave)


def bytes_each(
    costs: CostSettings, replicas: int, states: StateBytes | None = None
) -> Fraction:
    """Bytes of a parameter in each of the `replicas` that hold it.

    Of the model's own layers, unless its `states` are given.
    """
    each, sharers = states or costs.layer_states, costs.updates.sharers(replicas)
    return Fraction(each.whole + costs.updates.kept(each) * (sharers - 1)) / sharers


def states_mib(
    costs: CostSettings,
    parameters: int,
    t: int,
    replicas: int = 1,
    routed: int = 0,
    lora: tuple[int, int] = (0, 0),
) -> int:
    """Weights, gradients and optimiser states of `parameters`, on each of `t` GPUs.

    `routed` of them are of experts that expert parallelism divides; `lora` are the
    parameters of adapters beside them, and those of such experts'.
    """
    own = shares(costs, parameters, routed, t, replicas)
    return shares_mib(costs, own, shares(costs, *lora, t, replicas))


def shares(
    costs: CostSettings, parameters: int, routed: int, t: int, replicas: int
) -> Iterator[Share]:
    """Yield what each of `t` GPUs of a replica holds, and how many hold the same."""
    c, e = costs.compute.context_parallel, costs.compute.expert_parallel
    yield Fraction((parameters - routed) * c, t), replicas * c
    if routed:
        yield Fraction(routed, e), max(1, replicas * t // e)


def shares_mib(
    costs: CostSettings, held: Iterable[Share], lora: Iterable[Share] = ()
) -> int:
    """Return the MiB of parts that different numbers of replicas hold."""
    total = Fraction(0)
    for states, parts in ((costs.layer_states, held), (costs.memory.states, lora)):
        total += sum((bytes_each(costs, n, states) * p for p, n in parts), Fraction(0))
    return mib(total)


#: Bytes of the gradient that a host's optimiser reads: its copy of 32 bits.
_HOST_GRADIENT = 4


def pinned_each(costs: CostSettings) -> int | Fraction:
    """Return the bytes that a host pins for the optimiser of a trained parameter."""
    return costs.memory.updated.optimiser + _HOST_GRADIENT


class LayerBytes(NamedTuple):
    """Bytes that a layer of one kind needs on each GPU.

    `each` is kept of every micro-batch in flight, of checkpoints in all; `once` is
    there once.
    """

    each: Fraction
    once: Fraction


def layer_bytes(
    model: ModelSpec, workload: Workload, kind: Parts, t: int, b: int
) -> LayerBytes:
    """Return the bytes of a layer on `t` GPUs with micro-batches of `b` sequences."""
    costs = workload.costs
    boundary = Fraction(
        costs.memory.element_bytes * b * workload.sequence_length * model.hidden
    )
    if costs.memory.activations == "checkpoint":
        return LayerBytes(boundary, Fraction(0))
    if costs.compute.sequence_parallel:
        boundary /= t
    kept, scores = _kept(model, workload, kind, t, b)
    if costs.compute.recompute == "full":
        return LayerBytes(boundary, kept + scores)
    again = boundary * _dropped(model, costs, kind, t)
    if "core_attn" in modules_of(costs.compute.recompute):
        again += scores
    return LayerBytes(kept + scores - again, again)


def _dropped(model: ModelSpec, costs: CostSettings, kind: Parts, t: int) -> Fraction:
    """Return how many inputs' worth of a layer named modules leave out.

    An MLP has four before and four after its function, attention three of queries, keys
    and values, each cut among `t` GPUs, and a norm that is a module one.
    """
    named, model = modules_of(costs.compute.recompute), model.of(kind)
    every = model.shared_experts + (model.active_experts or 0)
    shared, cut, whole = Fraction(model.shared_experts, every or 1), Fraction(0), 0
    for part in kind:
        latent = model.latent is not None and part in ATTENDING
        whole += (latent or part == EXPERTS) and "layernorm" in named
        if MODULE_OF.get(part) in named:
            cut += 8
            whole += part == DENSE
        elif part == EXPERTS:
            cut += 8 * shared * ("shared_experts" in named)
            cut += 4 * (1 - shared) * ("moe_act" in named)
        elif latent:
            cut += 3 * ("mla_up_proj" in named)
    return whole + cut / (1 if costs.compute.sequence_parallel else t)


def _kept(
    model: ModelSpec, workload: Workload, kind: Parts, t: int, b: int
) -> tuple[Fraction, Fraction]:
    """Return what a layer keeps without its scores, and these.

    Layers of fewer or more parts than attention and an MLP keep in proportion; a mixer
    without scores what `hetopt.schema.layers` says, and a layer that predicts further
    tokens what it joins.
    """
    costs, model = workload.costs, model.of(kind)
    e, h = costs.memory.element_bytes, model.hidden
    whole = Fraction((len(kind) - (FURTHER in kind)) * (2 * e + 1) * h)
    if modules_of(costs.compute.recompute) and costs.compute.sequence_parallel:
        whole /= t
    whole += 4 * e * h * (FURTHER in kind)
    attending = sum(part in ATTENDING for part in kind)
    mlps = sum(part in (DENSE, EXPERTS) for part in kind)
    mixers = sum(mixer.sizes.kept for part in kind if (mixer := model.mixer(part)))
    shared = e * (4 * h * attending + 8 * h * mlps + mixers)
    tokens = b * workload.sequence_length
    scores = 0
    if not costs.compute.flash:
        scores = attending * (2 * e + 1) * model.heads * workload.sequence_length
    return tokens * (whole + Fraction(shared, t)), Fraction(tokens * scores, t)


class RunActivations:
    """Activations of runs of layers at one degree and micro-batch size.

    Sums over all layers are kept as whole parts of a byte, so that a run costs a
    difference: searches and proofs ask for hundreds of thousands of runs.
    """

    def __init__(self, model: ModelSpec, workload: Workload, t: int, b: int) -> None:
        """Take the layers on `t` GPUs with micro-batches of `b` sequences."""
        self._costs, layers = workload.costs, len(model.kinds)
        kinds = dict.fromkeys(model.kinds)
        of = {kind: layer_bytes(model, workload, kind, t, b) for kind in kinds}
        parts = [part for each in of.values() for part in each]
        self._unit = unit = lcm(*(part.denominator for part in parts))
        each = (int(of[kind].each * unit) for kind in model.kinds)
        self._sums = [*accumulate(each, initial=0)]
        self._peaks: list[tuple[int, list[int]]] = []
        peaks = [int(x.once * unit) for x in of.values()]
        peak_of = dict(zip(of, peaks, strict=True))
        for peak in dict.fromkeys(peaks):
            # The next layer that has this peak, from each layer on.
            following = [layers] * (layers + 1)
            for i in reversed(range(layers)):
                has = peak_of[model.kinds[i]] == peak
                following[i] = i if has else following[i + 1]
            self._peaks.append((peak, following))

    def _of(
        self, layers: Sequence[int], in_flight: int | Fraction
    ) -> tuple[int | Fraction, int]:
        if layers and not isinstance(layers, range):  # virtual stages that a plan tells
            each = [self._of(range(x, x + 1), in_flight) for x in layers]
            return sum(kept for kept, _ in each), max(once for _, once in each)
        if not layers:  # what the first one works with
            return 0, self._peaks[0][0]
        first, end = layers[0], layers[-1] + 1
        once = max(own for own, following in self._peaks if following[first] < end)
        kept: int | Fraction = self._sums[end] - self._sums[first]
        if self._costs.memory.activations != "checkpoint":
            kept *= in_flight  # the paper weighs checkpoints of all micro-batches
        return kept, once

    def bytes(
        self, layers: Sequence[int], in_flight: int | Fraction
    ) -> tuple[Fraction, Fraction]:
        """Return what `in_flight` micro-batches keep, in all, and what is there once.

        What is there once is that of the layer that needs most of it.
        """
        kept, once = self._of(layers, in_flight)
        return Fraction(kept) / self._unit, Fraction(once) / self._unit

    def mib(self, layers: Sequence[int], in_flight: int | Fraction) -> int:
        """Return the activations of a run of layers in MiB, each part rounded up."""
        kept, once = self._of(layers, in_flight)
        size = self._unit * MIB
        return -int(-kept // size) - int(-once // size)


def logits_mib(model: ModelSpec, workload: Workload, t: int, b: int) -> int:
    """Logits of `b` sequences on each of `t` GPUs.

    Calibrated they are weighed with the activations (`hetopt.costs.weighing`).
    """
    costs = workload.costs
    if costs.memory.activations == "calibrated":
        return 0
    each = costs.memory.element_bytes + (0 if costs.memory.fused_loss else 4)
    each += 4 if costs.memory.logit_gradients else 0
    return mib(Fraction(each * b * workload.sequence_length * model.vocabulary, t))


def end_copies(model: ModelSpec, workload: Workload, ends: int) -> int:
    """Matrices V H that a stage at so many ends of the pipeline holds."""
    if workload.costs.compute.head == "omit":
        return 0
    return min(ends, 1) if model.tied_embeddings else ends


def ends_mib(
    model: ModelSpec,
    workload: Workload,
    t: int,
    b: int,
    replicas: int = 1,
    *,
    first: bool,
    last: bool,
) -> int:
    """Embedding on the first stage, head and logits on the last."""
    costs = workload.costs
    if costs.compute.head == "omit":
        return 0
    share = Fraction(model.embedding_parameters * costs.compute.context_parallel, t)
    holders = replicas * costs.compute.context_parallel
    states = mib(share * bytes_each(costs, holders, costs.end_states))
    total = end_copies(model, workload, first + last) * states
    return total + logits_mib(model, workload, t, b) if last else total
