"""The five groups of cost settings, each with the rules that its own fields keep.

Every field says one thing about the cost model; a paper's variant of it is data. What
two groups must agree on stands in `hetopt.schema.settings`.
"""

from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from .calibration import Calibration, Profile
from .record import LatencyUs, NotNegative, Positive, Record, ReserveMib, once
from .states import Lora, Offload, Optimiser, StateBytes, states_of

Parallel = Annotated[int, Field(ge=1, le=4096)]


class Split(NamedTuple):
    """Context-parallel and expert-parallel degree, virtual stages, groups of ZeRO.

    `CostSettings` says what they are. A group of g GPUs is `context` tensor-parallel
    ones of g / context GPUs.
    """

    context: int = 1
    experts: int = 1
    interleave: int = 1
    groups: int = 1


#: The fields of costs, alternatives and plans that say so.
FIELDS = ("context_parallel", "expert_parallel", "interleave", "zero_groups")


Recompute = Literal["full", "selective", "none"]
Precision = Literal["fp32", "bf16", "bf16_mixed", "fp16_mixed", "bf16_fp32_gradients"]


class Compute(Record):
    """These settings say what GPUs compute, how they divide it, and what times it.

    `context_parallel: c` divides sequences among c parts of every group of GPUs, each
    of which is tensor-parallel: a group of g GPUs has degree g / c. `expert_parallel:
    e` gives each GPU an e-th of the experts, whole, e GPUs of a layer's replicas
    together all of them; 1 cuts every expert into tensor-parallel parts. Both need
    calibrated times and activations.
    """

    head: Literal["include", "omit"] = "include"
    recompute: Recompute = "full"
    flash: bool = False
    sequence_parallel: bool = False
    context_parallel: Parallel = 1
    expert_parallel: Parallel = 1
    layer_times: Literal["analytic", "profile", "calibrated"] = "analytic"
    profile: tuple[Profile, ...] = ()
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _times_have_a_source(self) -> Self:
        if (self.layer_times == "profile") != bool(self.profile):
            raise ValueError(
                f"layer_times is {self.layer_times!r} and profile has "
                f"{len(self.profile)} rows: give both or neither"
            )
        if (self.layer_times == "calibrated") != (self.calibration is not None):
            there = "has no" if self.calibration is None else "has a"
            raise ValueError(
                f"layer_times is {self.layer_times!r} and costs {there} calibration: "
                "give both or neither"
            )
        return self

    @model_validator(mode="after")
    def _rows_are_alike(self) -> Self:
        for field in ("layer_mib", "activation_mib", "update_us"):
            given = [getattr(row, field) is not None for row in self.profile]
            if any(given) and not all(given):
                row = self.profile[given.index(False)]
                raise ValueError(
                    f"profile[{given.index(False)}] ({row.gpu!r}, tensor_parallel "
                    f"{row.tensor_parallel}, micro_batch {row.micro_batch}) has no "
                    f"{field}, other rows have: measure it, or remove it from all"
                )
        sizes = (
            f"{r.gpu} at tensor_parallel {r.tensor_parallel}, micro_batch "
            f"{r.micro_batch}"
            for r in self.profile
        )
        once("profile rows of one size", sizes, "remove all but one")
        return self


class Memory(Record):
    """These settings say what takes memory: states, activations, logits.

    `precision` in place of `bytes_per_parameter` says what these bytes are, and how
    wide activations and gradients are on links; without it they are 16-bit.
    `optimiser` in place of AdamW keeps other states, which needs a `precision`;
    `offload` has them in the host's memory. `fused_loss` keeps one
    copy of the logits, in their own precision; `logit_gradients` counts those of the
    loss beside them.
    """

    bytes_per_parameter: Annotated[int, Field(ge=1, le=64)] = 16
    precision: Precision | None = None
    optimiser: Optimiser = "adamw"
    offload: Offload | None = None
    activations: Literal["standard", "checkpoint", "calibrated"] = "standard"
    fused_loss: bool = False
    logit_gradients: bool = False
    reserve_mib: ReserveMib = 0

    @model_validator(mode="after")
    def _bytes_of_the_precision(self) -> Self:
        if self.precision is None:
            if self.optimiser != "adamw":
                raise ValueError(
                    f"optimiser {self.optimiser!r} needs a precision, which gives the "
                    "width of its states: add precision 'bf16_mixed' or another"
                )
            return self
        known = ceil(self.updated.whole)
        if "bytes_per_parameter" not in self.model_fields_set:
            # Frozen from the outside; here the record is still being made.
            self.__dict__["bytes_per_parameter"] = known
        elif self.bytes_per_parameter != known:
            raise ValueError(
                f"bytes_per_parameter is {self.bytes_per_parameter}, precision "
                f"{self.precision!r} makes it {known}: give one of them"
            )
        return self

    @model_validator(mode="after")
    def _a_fused_loss_keeps_no_gradients(self) -> Self:
        if self.fused_loss and self.logit_gradients:
            raise ValueError(
                "fused_loss and logit_gradients exclude each other, as a fused loss "
                "overwrites the logits with gradients: remove one"
            )
        return self

    @cached_property
    def updated(self) -> StateBytes:
        """Return the bytes of a trained parameter; weights have 16 bits unless told."""
        return self.updated_by(self.optimiser)

    def updated_by(self, optimiser: Optimiser) -> StateBytes:
        """Return the bytes of a trained parameter whose optimiser is this one."""
        if (known := states_of(self.precision, optimiser)) is not None:
            return known
        each = self.bytes_per_parameter
        # Fewer than four bytes leave nothing for an optimiser: all are weights then.
        return StateBytes(2, 2, each - 4) if each > 4 else StateBytes(each, 0, 0)

    def on_gpu(self, states: StateBytes) -> StateBytes:
        """Return what a GPU holds of such states."""
        return states._replace(optimiser=0) if self.hosts_update else states

    @property
    def hosts_update(self) -> bool:
        """Return whether optimiser states are in the memory of hosts."""
        return self.offload is not None

    @cached_property
    def states(self) -> StateBytes:
        """Return the bytes of a trained parameter that a GPU holds."""
        return self.on_gpu(self.updated)

    @property
    def element_bytes(self) -> int:
        """Return the bytes of an element of an activation."""
        return 4 if self.precision == "fp32" else 2

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of a gradient when it is synchronised."""
        return 2 if self.precision is None else self.states.gradient


class Links(Record):
    """These settings say how activations pass from stage to stage.

    `hops: both` lets a transfer occupy the receiving stage too. `hop_factor` is the
    share of a hop that nothing hides, `interleaved_hop_factor` that of interleaved
    pipelines where it is another.
    """

    hops: Literal["sender", "both"] = "sender"
    hop_factor: NotNegative = 1
    interleaved_hop_factor: NotNegative | None = None


class Schedule(Record):
    """These settings say in which order a pipeline works, and how long it takes.

    `interleave: v` gives each GPU v virtual stages in place of one.
    With `layout: told` a plan may tell the layers of each virtual stage; the first may
    have none but the embedding, the last none but the loss. `iteration_overhead_us` is
    what an iteration takes besides what is timed by itself: launches, clipping, loss.
    """

    in_flight: Literal["1f1b", "gpipe", "one"] = "1f1b"
    interleave: Annotated[int, Field(ge=1, le=1000)] = 1
    layout: Literal["equal", "told"] = "equal"
    pipeline: Literal["critical", "lockstep"] = "critical"
    pipeline_factor: Positive = 1
    iteration_overhead_us: LatencyUs = 0

    def checked(self) -> Self:
        """Return the settings; `ValueError` where pipelines cannot be interleaved."""
        if self.interleave > 1 and not self.is_1f1b:
            raise ValueError(
                f"interleave {self.interleave} is a 1F1B schedule, found in_flight "
                f"{self.in_flight!r} and pipeline {self.pipeline!r}: give in_flight "
                "'1f1b' and pipeline 'critical', or interleave 1"
            )
        return self

    _checks = model_validator(mode="after")(checked)

    @property
    def is_1f1b(self) -> bool:
        """Return whether pipelines may be interleaved."""
        return self.in_flight != "gpipe" and self.pipeline != "lockstep"


class Updates(Record):
    """These settings say what is trained, and how replicas share and sum its states.

    `zero: 1..3` divides optimiser states, gradients too, weights too, among the
    replicas of a layer. `zero_groups: r` lets them divide states in r groups, each of
    which has all of them (HSDP): passes over gradients and weights stay in a group,
    filled in the order of ranks, and groups sum what their members have.
    With ZeRO 3, `gathers: micro_batch` gathers weights and reduces gradients for every
    micro-batch, as FSDP does where pipelines have one stage; `iteration` once.

    With `lora` adapters alone are trained: frozen weights have neither gradients nor
    optimiser states, and backward passes make no gradients of them. `tied_sync` times
    the all-reduce of tied embeddings between first and last stage.
    """

    lora: Lora | None = None
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    zero_groups: Parallel = 1
    gathers: Literal["iteration", "micro_batch"] = "iteration"
    sync: Literal["ring", "bottleneck"] = "ring"
    sync_overlap: Literal["none", "backward"] = "none"
    sync_factor: NotNegative = 1
    tied_sync: bool = False

    def sharers(self, replicas: int) -> int:
        """Return how many of the replicas of a layer divide its states."""
        return max(1, replicas // self.zero_groups) if self.zero else 1

    def kept(self, states: StateBytes) -> int | Fraction:
        """Return the bytes of a parameter that each of any number of replicas holds."""
        weight, gradient, _ = states
        return (states.whole, weight + gradient, weight, 0)[self.zero]

    @property
    def sync_passes(self) -> int:
        """Passes over the gradients: reduce, gather; ZeRO-3 gathers weights twice."""
        return 3 if self.zero == 3 else 2
