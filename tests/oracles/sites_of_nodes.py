"""Clusters of sites: quick links between some nodes, slow ones between others."""

from random import Random
from typing import Any

_QUICK, _SLOW = (5, 20, 50), (0.02, 0.1, 0.5)  # GB/s


def in_sites(rng: Random, tree: dict[str, Any]) -> dict[str, Any]:
    """An instance's tree with its nodes in two sites or three, if it has so many."""
    cluster = tree["cluster"]
    names = [node["name"] for node in cluster["nodes"]]
    rng.shuffle(names)
    site = {name: number % rng.choice([2, 2, 3]) for number, name in enumerate(names)}
    quick, slow = rng.choice(_QUICK), rng.choice(_SLOW)
    inter = {"gbytes_per_s": slow, "latency_us": rng.choice([0, 30])}
    pairs = [
        [one, other, quick if site[one] == site[other] else slow]
        for number, one in enumerate(names)
        for other in names[number + 1 :]
    ]
    return tree | {"cluster": cluster | {"inter": inter | {"pairs": pairs}}}
