"""Times of layers and of the head from fitted constants, computed when asked for.

What `costs.layer_times: calibrated` means: the products, attention, traffic, wires and
launches of `hetopt.costs.formulas`, for one micro-batch of b sequences on t GPUs of a
node, with the constants that the instance carries. In tables these times stand where a
profile's would, for every size and degree, each rounded up once to whole us.

- A model whose parameters are listed multiplies with that many: its products take time
  in proportion to them, everything else is that of its shape.
- The forward pass is what full recomputation adds, with a third of the launches.
- A GPU without bf16 has no fused kernel of attention but PyTorch's own: where the
  framework does not leave the choice to PyTorch its scores pass through memory.
- The optimiser moves 40 bytes of a parameter, times the constant `update`.
- Layers take `pace` times as long, but where the plan is on one GPU, and as `release`
  has it by the half-year of the software, where an instance tells it.
- Tokens on their way to divided experts share what leaves a node among the GPUs of it
  that the plan uses, at the rate of the slowest link between nodes that it uses.

The last two depend on a plan. Where it is not given, times are those of plans on
several GPUs, and none takes less.

Times are sums of what every micro-batch takes and of what is in proportion to its
sequences: a larger one takes longer, and each of its sequences less long. Bounds
(`hetopt.bounds.training_plan`) rely on that.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ..caching import cached_method
from ..catalogue import find_gpu
from ..errors import InstanceError
from ..schema import Calibration, Cluster, GpuType, Instance, ModelSpec, exact
from ..schema.layers import FURTHER, MAMBA, MIXERS, WINDOW, LayerShape, Parts, shape_of
from .compute import LinkRate, NodeClass
from .constants import Stated
from .formulas import kernels, step, wires
from .formulas.architecture import Architecture, Indexer, Layer, Mixer, mamba_2
from .formulas.frameworks import adapting, by_pytorch, framework
from .formulas.layout import BESIDE_ALL, Layout, half_years
from .formulas.machine import Machine, host_of
from .formulas.step import LayerTimes

Times = tuple[int, ...]
_ANY = 4096  # GPUs of a node: a group never leaves its node
_FORWARD = 1 / 3  # of a layer's launches, what its forward pass is
_SOME_LINK = (Fraction(0), Fraction(10**9))


class Around(NamedTuple):
    """GPUs of a node that send tokens, and what these have between nodes together."""

    gpus: int
    bytes_per_s: float


class Sort(NamedTuple):
    """Layers that take equal times: what they have in common."""

    parts: Parts
    share: float  # of the parameters that its shape has


def architecture_of(model: ModelSpec) -> Architecture:
    """The shape of a model; its listed parameters are left out."""
    width = model.expert_intermediate or model.mlp_width
    indexer, mixers = None, {}
    if (y := model.indexer) is not None:
        low = model.latent.query_rank if model.latent else 0
        chooses = y.products(model.hidden, low)
        indexer = Indexer(y.heads, y.head_dim, y.chosen, chooses)
    for part in MIXERS:
        if (m := model.mixer(part)) is not None:
            mixers[part] = Mixer(m.products(model.hidden), *m.sizes[:3])
    if (two := model.mamba) is not None:  # without its states, as it was measured
        widths = (two.heads, two.head_dim, two.state, two.groups)
        mixers[MAMBA] = mamba_2(model.hidden, *widths)
    return Architecture(
        layers=model.kinds,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads or model.heads,
        head_dim=model.key_dim,
        intermediate=model.mlp_width,
        gated=model.gated,
        vocabulary=model.vocabulary,
        tied=model.tied_embeddings,
        experts=model.experts or 0,
        experts_per_token=model.active_experts or 0,
        expert_intermediate=width,
        shared_intermediate=model.shared_experts * width,
        relu=model.activation == "relu",
        latent=model.latent,
        mixers=mixers,
        indexer=indexer,
        value_dim=model.value_dim or 0,
        gate=model.gate_width,
        kv_products=model.kv_products,
        expert_hidden=model.expert_hidden or 0,
        # Without a kind that has it a window is of none.
        window=model.window if any(WINDOW in kind for kind in model.kinds) else None,
        chunked=model.chunked,
    )


def machine_of(
    gpu: GpuType, intra: LinkRate | None, node: "Around | None" = None
) -> Machine:
    """A GPU as the formulas see it; `InstanceError` where its card is not told.

    Without the `node` around it, it is in one that its group never leaves.
    """
    if gpu.card is None or gpu.generation is None or not gpu.peaks:
        raise InstanceError("a GPU type has no card, generation or peaks: add them")
    link = float(intra[1]) if intra is not None else 1.0
    around = node or Around(_ANY, link)
    return Machine(
        card=gpu.card,
        generation=gpu.generation,
        flops={precision: tflops * 1e12 for precision, tflops in gpu.peaks.items()},
        memory_bytes_per_s=(gpu.memory_gbytes_per_s or 0.0) * 1e9,
        memory_gib=gpu.memory_gib,
        gpus=around.gpus,
        domain=around.gpus,
        link_bytes_per_s=link if intra is not None else around.bytes_per_s,
        adapters=1,
        adapter_bytes_per_s=around.bytes_per_s,
        host=host_of(gpu.card),
        linked=(card := find_gpu(gpu.card)) is None or card.linked,
    )


class Calibrated:
    """Times of one instance whose costs have a calibration."""

    def __init__(
        self,
        instance: Instance,
        calibration: Calibration,
        used: Mapping[str, int] | None = None,
    ) -> None:
        """Times of `instance` by `calibration`, which its costs have.

        `used` are the GPUs of each node that a plan uses, if it is known.
        """
        self.calibration, self._used = calibration, used
        self.model, self.workload = instance.model, instance.workload
        cluster = instance.planned_cluster
        self.gpus = cluster.gpus
        self._divided = self.workload.costs.compute.expert_parallel > 1
        #: Bytes/s between nodes that tokens on their way to experts have.
        self._between = _between(cluster, used) if self._divided else 1.0
        #: What gives a constant; its `read` are the names that were asked for.
        self.constant = Stated(calibration.constants)
        self.architecture = architecture_of(instance.model)
        self._shaped = {
            shape_of(kind): architecture_of(instance.model.of(kind))
            for kind in dict.fromkeys(instance.model.kinds)
        }
        self._site = calibration.site or ""
        by = calibration.framework, calibration.style, self._site
        gpus = sum(used.values()) if used is not None else cluster.gpu_count
        #: By which layers take longer where several GPUs compute.
        self.crowding = self.constant("pace", *by) if gpus > 1 else 1.0
        self.pace = self.crowding
        if calibration.release is not None:
            newer = half_years(calibration.release)
            self.pace *= step.by_release(self.constant, self.architecture, newer)
        #: The sort of each layer.
        self.sorts = self._sorts()

    def _sorts(self) -> tuple[Sort, ...]:
        model = self.model
        listed = model.layer_parameters, model.parameters_per_layer
        if not any((*listed, model.active_layer_parameters)):
            return tuple(Sort(kind, 1.0) for kind in model.kinds)
        own = {kind: _weights(self.of(kind), kind) for kind in model.kinds}
        return tuple(
            Sort(kind, told / own[kind])
            for kind, told in zip(model.kinds, model.active_parameters, strict=True)
        )

    def terms(
        self, place: NodeClass, t: int, b: int, rule: str, sort: Sort
    ) -> LayerTimes:
        """Seconds of one layer, both passes, by what takes them, without pace."""
        shape = shape_of(sort.parts)
        parts = [self._parts(place, t, b, rule, part, shape) for part in sort.parts]
        total = LayerTimes(*map(sum, zip(*parts, strict=True)))
        # A layer that predicts further tokens has a pass through the head besides.
        head = self._head_s(place, t, b) if FURTHER in sort.parts else 0.0
        return total._replace(
            products=total.products * sort.share + head,
            experts=total.experts * sort.share,
        )

    @cached_method
    def _parts(
        self,
        place: NodeClass,
        t: int,
        b: int,
        rule: str,
        part: str,
        shape: LayerShape | None,
    ) -> LayerTimes:
        run, a = self.layout(place.gpu, t, b, rule), self._shaped[shape]
        machine = min(
            self._machines(place, run, t),
            key=lambda one: wires.experts_s(one, a, run, run.tokens),
        )
        return step.part_times(self.constant, machine, a, run, part)

    def layout(self, gpu: str, t: int, b: int, rule: str, stages: int = 1) -> Layout:
        """A group of `t` GPUs that recompute by `rule`, micro-batches of `b` sequences.

        A group that context parallelism does not divide is one of as many as it does.
        """
        calibration, costs = self.calibration, self.workload.costs
        hidden = calibration.overlap
        runs = "bf16" in (self.gpus[gpu].peaks or ()) or by_pytorch(
            calibration.framework
        )
        usual, lora = framework(calibration.framework), costs.updates.lora
        fused = calibration.kernel != "none" and runs
        alone = lora is not None and lora.beside == "attention"
        compiled = usual.compiled_loss and calibration.style == "compiled"
        return Layout(
            framework=calibration.framework,
            style=calibration.style,
            precision=calibration.precision,
            sequence=self.workload.sequence_length,
            micro_batch=b,
            micro_batches=1,
            tp=max(1, t // costs.compute.context_parallel),
            cp=costs.compute.context_parallel,
            ep=costs.compute.expert_parallel,
            pp=stages,
            zero=costs.updates.zero,
            recompute=usual.selective if rule == "selective" else rule,
            split_sequence=costs.compute.sequence_parallel,
            kernel=calibration.kernel if fused else None,
            sharding=usual.sharding,
            accumulate_fp32=costs.memory.gradient_bytes == 4,
            states=self._states,
            listed=usual.listed and costs.memory.optimiser == "adamw",
            hosted=("optimizer",) if costs.memory.hosts_update else (),
            dropout=self.model.dropout,
            expert_biases=bool(self.model.vectors and self.model.vectors.expert),
            fused_loss=calibration.loss != "plain"
            and (costs.memory.fused_loss or usual.fused_loss or compiled),
            chunked_loss=calibration.loss == "chunked" or usual.chunked_loss,
            overlap_tp="tp" in hidden,
            overlap_ep=None if "untold" in hidden else "experts" in hidden,
            flexible=calibration.dispatcher == "flexible",
            lora=lora is not None,
            rank=lora.rank if lora else 0,
            drops=adapting(self.workload.runs_on)[1],
            adapted=("attention",) if alone else BESIDE_ALL,
            frozen_bits=lora.weight_bits if lora else None,
        )

    @cached_property
    def _states(self) -> str:
        """What the optimiser works on; of PyTorch without ZeRO autocast's weights."""
        costs, framework = self.workload.costs, self.calibration.framework
        if known := {"fp32": "fp32", "bf16": "16bit"}.get(str(costs.memory.precision)):
            return known
        alone = not costs.updates.zero and costs.updates.lora is None
        wide = costs.memory.precision == "bf16_fp32_gradients"
        autocast = framework in ("torch", "trainer") and alone and wide
        return "amp" if autocast else "mixed"

    def of(self, kind: Parts) -> Architecture:
        """Return the shape that a layer of `kind` has."""
        return self._shaped[shape_of(kind)]

    def _machines(self, place: NodeClass, run: Layout, t: int) -> list[Machine]:
        """Return a GPU in a group of `t`, by how many of its node the plan may use.

        A node that all GPUs of an expert fit into may have any number more.
        """
        gpu = self.gpus[place.gpu]
        if place.gpus is None:
            return [machine_of(gpu, place.intra)._replace(site=self._site)]
        most = min(place.gpus, run.ep * run.experts.cut)
        counts = [place.gpus] if self._used is not None else range(t, max(t, most) + 1)
        return [
            machine_of(
                gpu, place.intra if n > 1 else None, Around(n, self._between)
            )._replace(site=self._site)
            for n in counts
        ]

    def layer_s(self, place: NodeClass, t: int, b: int, rule: str, sort: Sort) -> float:
        """Seconds of one layer, both passes."""
        return step.busy_s(self.terms(place, t, b, rule, sort)) * self.pace

    @cached_method
    def times_us(self, place: NodeClass, t: int, b: int) -> tuple[Times, Times]:
        """Both passes of each layer, and its backward pass; whole us, rounded up."""
        known = {sort: self._sort_us(place, t, b, sort) for sort in set(self.sorts)}
        both, backward = zip(*(known[sort] for sort in self.sorts), strict=True)
        return both, backward

    def _sort_us(self, place: NodeClass, t: int, b: int, sort: Sort) -> tuple[int, int]:
        rule = self.workload.costs.compute.recompute
        both = self.layer_s(place, t, b, rule, sort)
        once, twice = (self.terms(place, t, b, x, sort) for x in ("none", "full"))
        less, more = (step.busy_s(x) - x.launches for x in (once, twice))
        forward = (more - less + _FORWARD * once.launches) * self.pace
        return _us(both), _us(max(0.0, both - forward))

    def alone_us(self, place: NodeClass, t: int, b: int, layer: int) -> int:
        """Both passes of a layer without what tensor-parallel collectives add."""
        rule = self.workload.costs.compute.recompute
        terms = self.terms(place, t, b, rule, self.sorts[layer])
        return _us(step.busy_s(terms._replace(tensor=0.0)) * self.pace)

    def head_us(self, place: NodeClass, t: int, b: int) -> int:
        """Head and loss, both passes; 0 where the head is omitted."""
        return _us(self._head_s(place, t, b))

    def _head_s(self, place: NodeClass, t: int, b: int) -> float:
        a, workload = self.architecture, self.workload
        if workload.costs.compute.head == "omit":
            return 0.0
        by = (self.calibration.style, self.calibration.framework)
        c = workload.costs.compute.context_parallel
        tokens, degree = b * workload.sequence_length / c, max(1, t // c)
        machine = machine_of(self.gpus[place.gpu], place.intra)
        frozen = workload.costs.updates.lora is not None
        of = self.constant, machine, a, tokens, degree, by
        return kernels.head_s(*of, lora=frozen)

    @cached_property
    def update_bytes(self) -> Fraction:
        """Bytes that AdamW was seen to move for a parameter.

        0 where the constants have no `update`.
        """
        if "update" not in self.calibration.constants:
            return Fraction(0)
        constant = self.constant("update", self.calibration.framework)
        return exact(constant) * step.UPDATE_BYTES

    def read_all(self, place: NodeClass) -> None:
        """Ask for all that times depend on, whatever a plan chooses."""
        linked = place._replace(intra=_SOME_LINK)
        for sort in set(self.sorts):
            for rule in ("none", "selective", "full"):
                for t in (1, 2):
                    self.terms(linked, t, 1, rule, sort)
        self.head_us(place, 1, 1)
        self.constant("head.unaligned")
        _ = self.update_bytes


def _weights(a: Architecture, parts: Layer) -> float:
    """Weights of a layer that a token is multiplied with."""
    matrices = (matrix for part in parts for matrix in a.matrices(part))
    return sum(matrix.parameters * matrix.rows for matrix in matrices)


def _between(cluster: Cluster, used: Mapping[str, int] | None) -> float:
    """Return the bytes/s of the slowest link between two nodes that a plan uses.

    Of the fastest link where these are not known; 1 where nothing leaves a node.
    """
    links = cluster.links
    if used is None:
        return float(max((links.exactly(x)[1] for x in links.present), default=1))
    at = [cluster.number[name] for name in used if name in cluster.number]
    found = {link for one in at for link in links.row(one)[at].tolist()} - {-1}
    return float(min((links.exactly(link)[1] for link in found), default=1))


def _us(seconds: float) -> int:
    return math.ceil(seconds * 1e6)
