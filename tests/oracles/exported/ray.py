"""Bundles of Ray: the machines that they ask for, and the plan beside them."""

from typing import Any

from hetopt.errors import InstanceError

from .literals import assigned
from .machines import PLAN, Share, disagreements, read

__all__ = ["read", "validate"]

LAUNCH, LABEL = "launch.py", "gpu-type"


def validate(files: dict[str, str]) -> list[str]:
    """Where the bundles are other machines than the plan's, or forget the plan."""
    told = assigned(files[LAUNCH], LAUNCH)
    broken = disagreements(files, _asked(told))
    if told.get("PLAN") != PLAN:
        broken.append(f"{LAUNCH} does not name {PLAN}")
    return broken


def _asked(told: dict[str, Any]) -> list[Share]:
    """The bundles by type and number of GPUs, in their order."""
    nodes, bundles, labels = (
        told.get(key, []) for key in ("NODES", "BUNDLES", "LABELS")
    )
    if not nodes or len(set(map(len, (nodes, bundles, labels)))) > 1:
        raise InstanceError(
            f"{LAUNCH}: found lists of different lengths, expected NODES, BUNDLES and "
            "LABELS of the same nodes; export the plan again"
        )
    found: dict[tuple[str, int], list[str]] = {}
    for node, bundle, label in zip(nodes, bundles, labels, strict=True):
        found.setdefault((label[LABEL], bundle["GPU"]), []).append(node)
    return [Share(gpu, gpus, tuple(names)) for (gpu, gpus), names in found.items()]
