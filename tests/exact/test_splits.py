"""Ways to share a micro-batch: none is left out that no other is as good as."""

from random import Random
from typing import Any

import numpy as np
import pytest

from hetopt.exact.enumeration.splits import every, needed


def drawn_costs(random: Random, samples: int, columns: int) -> Any:
    """Costs that grow with the share, by share from 0 on."""
    steps = [
        [random.choice([0, 0, 1, 2]) for _ in range(columns)] for _ in range(samples)
    ]
    steps.insert(0, [0] * columns)
    return np.cumsum(steps, axis=0).astype(np.int16)


@pytest.mark.parametrize("seed", range(40))
def test_every_way_to_share_has_one_as_good_among_those_that_are_needed(
    seed: int,
) -> None:
    random = Random(seed)
    samples, columns = random.randint(2, 9), random.randint(1, 4)
    places = [(p, t) for p in range(2) for t in (1, 2)]
    costs = {place: drawn_costs(random, samples, columns) for place in places}
    number = random.randint(1, 5)
    groups = sorted(random.choice(places) for _ in range(number))

    def whole(way: tuple[int, ...]) -> tuple[Any, int]:
        each = [costs[group][share] for group, share in zip(groups, way, strict=True)]
        return np.maximum.reduce(each), max(way)

    kept = [*needed(groups, samples, costs)]
    assert bool(kept) == (number <= samples)
    assert all(sum(way) == samples and min(way) >= 1 for way in kept)
    for way in every(number, samples):
        cost, most = whole(way)
        assert any(
            (whole(other)[0] <= cost).all() and whole(other)[1] <= most
            for other in kept
        )
