"""Instances under one of the settings that their workload lets a plan choose."""

from ..schema import Alternatives, CostSettings, Instance, Split
from ..schema.groups import FIELDS
from .constants import Table
from .formulas.frameworks import DEEPSPEED, framework
from .formulas.kernels import Constants


def under(
    instance: Instance,
    recompute: str | None = None,
    zero: int | None = None,
    split: Split | None = None,
) -> Instance:
    """The instance with these settings for its own; None keeps those of its costs.

    The settings that are given are no longer to be chosen.
    """
    workload = instance.workload
    costs, other = workload.costs, workload.alternatives
    both: dict[str, object] = {"recompute": recompute, "zero": zero}
    told = {field: value for field, value in both.items() if value is not None}
    if split is not None:
        told |= zip(FIELDS, split, strict=True)
    costs = _shown(costs, costs.model_copy(update=told))
    other = other.model_copy(update=dict.fromkeys(told, ()))
    made = workload.model_copy(update={"costs": costs, "alternatives": other})
    return instance.model_copy(update={"workload": made})


def exposed_share(c: Constants, program: str, costs: CostSettings, site: str) -> float:
    """Return the share of synchronisation, as it is counted, that nothing hides.

    A `site` is a machine with constants of its own; none is "".
    """
    usual, lora = framework(program), costs.updates.lora is not None
    if costs.updates.zero == 3:  # of frozen weights, as they are
        return c("fsdp", usual.sharding) * (1 if lora else costs.sent_share)
    overlap = "overlapped" if usual.overlapped else "plain"
    return c("dp", program, site, overlap) * costs.sent_share


def _shown(own: CostSettings, other: CostSettings) -> CostSettings:
    """Return other settings with as much shown of gathers, or of sums, as is usual.

    Only an instance that offers both has the constants of both.
    """
    calibration = own.compute.calibration
    alike = (own.updates.zero == 3) == (other.updates.zero == 3)
    if alike or calibration is None or not {"fsdp", "dp"} <= {*calibration.constants}:
        return other
    c, factor = Table(calibration.constants), own.updates.sync_factor
    program, site = calibration.framework, calibration.site or ""
    shown, before = (exposed_share(c, program, costs, site) for costs in (other, own))
    update = {"sync_factor": float(f"{factor * shown / before:.4g}")}
    return other.model_copy(update=update)


def fixed(instance: Instance) -> Instance:
    """The instance with nothing to choose: the settings of its costs."""
    workload = instance.workload
    if workload.alternatives == Alternatives():
        return instance
    costs = workload.costs
    return under(instance, costs.compute.recompute, costs.updates.zero, costs.split)


def without_update(instance: Instance) -> Instance:
    """The instance with the optimiser not timed, where its times are calibrated.

    Its plans are those of the instance, each faster by its update.
    """
    calibration = instance.workload.costs.compute.calibration
    if calibration is None or "update" not in calibration.constants:
        return instance
    kept = {name: x for name, x in calibration.constants.items() if name != "update"}
    other = calibration.model_copy(update={"constants": kept})
    costs = instance.workload.costs.model_copy(update={"calibration": other})
    workload = instance.workload.model_copy(update={"costs": costs})
    return instance.model_copy(update={"workload": workload})


def has_buckets(costs: CostSettings) -> bool:
    """Tell whether a stage of ZeRO may weigh more than one that divides less."""
    calibration = costs.compute.calibration
    if calibration is None or costs.memory.activations != "calibrated":
        return False
    # DeepSpeed's buckets come with it, and InternEvo copies less with its FSDP.
    return calibration.framework in DEEPSPEED | {"internevo"}
