"""Settings that the judge and `FastCost` price, and closed forms of proofs do not.

An exact method that takes plans apart (a stage's time from its own layers and hop,
its memory from its position) states less than the judge does under these; it must
refuse them, or fall back to bounds that hold all the same.
"""

from ..schema import Alternatives, Instance


def beyond(instance: Instance, *, updates: bool = False) -> tuple[str, ...]:
    """What of an instance is beyond such a statement, as its fields say it.

    With `updates` a statement that prices optimisers, and knows what is trained.
    """
    costs = instance.workload.costs
    found = []
    if costs.zero:
        found.append(f"workload.costs.zero is {costs.zero}, expected 0")
    if costs.gathers == "micro_batch":
        found.append("workload.costs.gathers is 'micro_batch', expected 'iteration'")
    if costs.interleave > 1:
        found.append(f"workload.costs.interleave is {costs.interleave}, expected 1")
    if costs.hops != "sender":
        found.append(f"workload.costs.hops is {costs.hops!r}, expected 'sender'")
    if (other := instance.workload.alternatives) != Alternatives():
        asked = other.model_dump(exclude_defaults=True)
        found.append(f"workload.alternatives is {asked}, expected none")
    found += [
        f"workload.costs.{field} is {value!r}, expected {usual!r}"
        for field, usual in (
            ("hop_parts", "shared"),
            ("tied_sync", False),
            ("flat_gradients", False),
            ("context_parallel", 1),
            ("expert_parallel", 1),
            ("zero_groups", 1),
        )
        if (value := getattr(costs, field)) != usual
    ]
    if any(row.update_us for row in costs.profile):
        found.append("workload.costs.profile has update_us, expected none")
    nodes = instance.cluster.nodes if instance.cluster else ()
    told = [node for node in nodes if node.adapters is not None]
    if told:
        one = told[0]
        found.append(
            f"cluster.nodes has adapters ({one.name!r}: {one.adapters}), expected none"
        )
    if not updates:
        found += _timed_optimisers(instance)
        if costs.lora is not None:
            found.append("workload.costs.lora is set, expected none")
    return tuple(found)


def _timed_optimisers(instance: Instance) -> list[str]:
    if instance.workload.costs.offload is not None:
        return [
            "workload.costs.offload is set, expected none: links to hosts are timed"
        ]
    if (calibration := instance.workload.costs.calibration) is not None:
        if "update" not in calibration.constants:
            return []
        return [
            "workload.costs.calibration.constants has update, expected none: the "
            "optimiser is timed with it"
        ]
    rates = instance.cluster.gpus if instance.cluster else {}
    return [
        f"cluster.gpus.{name}.memory_gbytes_per_s is {gpu.memory_gbytes_per_s}, "
        "expected none: the optimiser is timed with it"
        for name, gpu in rates.items()
        if gpu.memory_gbytes_per_s is not None
    ]
