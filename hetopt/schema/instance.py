"""An instance: a model, a workload, and a cluster to plan on or offers to rent."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from ..errors import InstanceError, UnknownName
from .calibration import multiplied_in
from .cluster import Cluster
from .groups import FIELDS
from .model import ModelSpec
from .record import (
    Count,
    Efficiency,
    Frequency,
    GbytesPerS,
    LatencyUs,
    MemoryGib,
    Name,
    PeakTflops,
    Record,
    Seconds,
    Usd,
    UsdPerHour,
    once,
)
from .states import lora_fault
from .targets import TARGETS
from .workload import Workload


def rented_card(gpu: str, together: int) -> str:
    """Return one GPU of what is rented: `B200` of `8xB200@lambda/us-east-1`."""
    name = gpu.partition("@")[0]
    return name.removeprefix(f"{together}x") or name


class Offer(Record):
    """GPUs that can be rented: a type, how many, at what price."""

    gpu: Name
    quota: Annotated[int, Field(ge=0, le=1_000_000)]
    usd_per_hour: UsdPerHour = Field(description="USD per hour of one GPU.")
    peak_tflops: PeakTflops
    memory_gib: MemoryGib
    efficiency: Efficiency = 1.0
    gbytes_per_s: GbytesPerS = Field(description="Network of an instance.")
    latency_us: LatencyUs = 0
    intra_gbytes_per_s: GbytesPerS | None = Field(
        None,
        description="Link between GPUs of an instance, which data-parallel degrees "
        "that divide gpus_per_instance synchronise over.",
    )
    gpus_per_instance: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="GPUs that are rented together; quota and price are per GPU."
    )

    losses_per_hour: Frequency = Field(
        0, description="Losses of a spot machine per hour: 0.02 is one in 50 hours."
    )

    @property
    def card(self) -> str:
        """Return what one of its GPUs is."""
        return rented_card(self.gpu, self.gpus_per_instance)


class Requirements(Record):
    """A provisioning must meet these requirements; `None` asks for nothing."""

    deadline_s: Seconds | None = None
    budget_usd: Usd | None = None


class Search(Record):
    """The structures that provisioning may choose from."""

    micro_batches: Count | None = None
    data_parallel: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    max_stages: Count = 16


class Instance(Record):
    """A model, a workload, and a cluster to plan on or offers to rent from."""

    name: Name
    source: Annotated[str, Field(max_length=2000)] = ""
    model: ModelSpec
    workload: Workload
    cluster: Cluster | None = None
    offers: tuple[Offer, ...] = ()
    requirements: Requirements = Requirements()
    search: Search | None = None

    @model_validator(mode="after")
    def _cluster_or_offers(self) -> Self:
        if (self.cluster is None) == (not self.offers):
            found = "both" if self.cluster else "neither"
            raise ValueError(f"found {found} of cluster and offers: give one of them")
        self._choices_are_of_offers()
        self._losses_cost_something()
        self._cards_are_told()
        self._experts_divide()
        self._adapters_are_counted()
        self._hosts_are_reached()
        once("offers of one GPU type", (x.gpu for x in self.offers), "merge them")
        for row in self.workload.costs.compute.profile:
            if len(row.layer_us) != self.model.layers:
                raise ValueError(
                    f"the profile of {row.gpu!r} (tensor_parallel "
                    f"{row.tensor_parallel}, micro_batch {row.micro_batch}) times "
                    f"{len(row.layer_us)} layers, the model has {self.model.layers}: "
                    "list one time per layer"
                )
        return self

    def _choices_are_of_offers(self) -> None:
        other = self.workload.alternatives
        for field in FIELDS if self.offers else ():
            if getattr(other, field):
                raise ValueError(
                    f"workload.alternatives.{field} is not supported with offers: "
                    "remove it"
                )

    def _losses_cost_something(self) -> None:
        told = (self.workload.restart_s, self.workload.checkpoint_every_s)
        if not self.offers and told != (None, None):
            raise ValueError(
                "workload.restart_s and checkpoint_every_s are for offers only: "
                "remove them"
            )
        lost = [offer.gpu for offer in self.offers if offer.losses_per_hour]
        if lost and None in told:
            raise ValueError(
                f"offer {lost[0]!r} has losses_per_hour, and nothing says what a loss "
                "costs: give workload.restart_s and workload.checkpoint_every_s"
            )

    def _experts_divide(self) -> None:
        for e in sorted({split.experts for split in self.workload.splits}):
            if e > 1 and (self.model.experts or 1) % e:
                raise ValueError(
                    f"expert_parallel {e} does not divide the {self.model.experts or 0}"
                    " experts of the model: give a divisor"
                )

    def _adapters_are_counted(self) -> None:
        lora = self.workload.costs.updates.lora
        if lora is not None and (fault := lora_fault(self.model)):
            raise ValueError(f"workload.costs.updates.lora: {fault}")

    def _hosts_are_reached(self) -> None:
        if self.workload.costs.memory.offload is None:
            return
        if self.cluster is None:
            raise ValueError(
                "workload.costs.memory.offload is not supported with offers: remove it"
            )
        for name, gpu in self.cluster.gpus.items():
            if gpu.host_gbytes_per_s is None:
                raise ValueError(
                    f"workload.costs.memory.offload: GPU type {name!r} has no "
                    "host_gbytes_per_s: add the rate of its link to the host"
                )
        for field in ("update_us", "layer_mib"):
            if any(getattr(row, field) for row in self.workload.costs.compute.profile):
                raise ValueError(
                    f"found workload.costs.memory.offload and a profile with {field}, "
                    "measured without offloading: remove one of them"
                )

    def _cards_are_told(self) -> None:
        calibration = self.workload.costs.compute.calibration
        if calibration is None:
            return
        if self.cluster is None:
            raise ValueError(
                "found layer_times 'calibrated' and offers, which are timed by "
                "formula: give layer_times 'analytic' and no calibration"
            )
        for name, gpu in self.cluster.gpus.items():
            for field in ("card", "generation", "peaks", "memory_gbytes_per_s"):
                if not getattr(gpu, field):
                    raise ValueError(
                        f"layer_times is 'calibrated' and GPU type {name!r} has no "
                        f"{field}: add it, or give layer_times 'analytic'"
                    )
            if multiplied_in(calibration.precision, gpu.peaks or {}) is None:
                raise ValueError(
                    f"GPU type {name!r} has peaks for {', '.join(gpu.peaks or ())}, "
                    f"calibration multiplies in {calibration.precision}: add its peak"
                )

    def on(self, target: str) -> Self:
        """The instance with `workload.runs_on`; `UnknownName` where there is none.

        Gradients have the width that the target keeps (`launched_by`).
        """
        target = target.replace("-", "_")
        if target not in TARGETS:
            raise UnknownName("target", target, [*TARGETS])
        return self.launched_by(target).with_workload(runs_on=target)

    def launched_by(self, target: str) -> Self:
        """Return the instance with gradients as a program keeps and exchanges them."""
        return self.with_workload(costs=self.workload.costs.launched_by(target))

    def in_precision(self, precision: str) -> Self:
        """Return the instance with parameters weighed and sent in another precision."""
        return self.with_workload(costs=self.workload.costs.in_precision(precision))

    def with_workload(self, **fields: object) -> Self:
        """Return the instance with other fields of its workload."""
        workload = self.workload.model_copy(update=fields)
        return self.model_copy(update={"workload": workload})

    def with_costs(self, **fields: object) -> Self:
        """Return the instance under other cost settings."""
        costs = self.workload.costs.model_copy(update=fields)
        return self.with_workload(costs=costs)

    @property
    def planned_cluster(self) -> Cluster:
        """The cluster; an `InstanceError` where the instance has offers instead."""
        if self.cluster is None:
            raise InstanceError(
                f"instance {self.name!r} has offers and no cluster: "
                "use `hetopt provision`"
            )
        return self.cluster
