"""Instances as plain data whose cost settings stand side by side, easy to change."""

from typing import Any

from hetopt.schema import Instance, ungroup_fields


def flat(instance: Instance, **how: Any) -> dict[str, Any]:
    """Return the JSON of an instance; `how` is that of `model_dump`."""
    tree = instance.model_dump(mode="json", **how)
    workload = tree["workload"]
    workload["costs"] = ungroup_fields(workload.get("costs", {}))
    return tree
