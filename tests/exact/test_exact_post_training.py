"""Post-training: statements beside brute force, and bounds that stop short."""

from random import Random
from typing import Any

import pytest
import tiny_post_training as tiny
from inputs import trials

import hetopt
from hetopt import registry
from hetopt.exact import post_training as exact
from hetopt.modelling import Limits
from hetopt.problems.post_training import Data
from hetopt.result import Stop
from hetopt.search.halves import Division, Halves, Trained
from hetopt.solving import statements


def drawn(seed: int) -> Data:
    return tiny.drawn(Random(f"post {seed}"))


class Known(Halves):
    """Divisions whose best training plans are known, by trying all."""

    def trained(self, division: Division) -> Trained:
        if division not in self.known:
            nodes = self.data.instance.planned_cluster.nodes
            some = {x.name: x.count for x in self.trainers(division)}
            counts = [some.get(x.name, x.count * (division is None)) for x in nodes]
            best = tiny.trained(self.data.instance, counts)
            self.known[division] = Trained(*(best[0], *best) if best else (None,))
        return self.known[division]


@pytest.mark.parametrize("most", trials(12, 300))
@pytest.mark.parametrize("backend", registry.names("backends"))
def test_the_statement_finds_the_best_of_all_plans(
    monkeypatch: pytest.MonkeyPatch, backend: str, most: int
) -> None:
    stated: Any = registry.entry("formulations", "post_training")
    monkeypatch.setattr(stated, "Halves", Known)
    for seed in range(most):
        data = drawn(seed)
        result = statements.solve("post_training", data, "post_training", backend)
        assert result.objective == tiny.best(data), seed
        assert result.bound is None or result.bound.value == result.objective


@pytest.mark.parametrize("seed", range(12))
def test_no_bound_is_above_the_best_plan(seed: int) -> None:
    """Neither the statement's, of plans that are not the best, nor a box's."""
    data = drawn(seed)
    if (best := tiny.best(data)) is None:
        return
    found = statements.solve("post_training", data, "post_training", "cpsat")
    assert found.bound is None or found.bound.value <= best
    halves = Halves(data)
    least = halves.trained(halves.units).at_least_us
    assert least is not None
    box = halves.way(halves.units, least, halves.rooms((0,) * len(halves.units)))
    ways = [way for way in (box, halves.way(None, least)) if way is not None]
    assert min(way.us for way in ways) <= best


def test_64_gpus_of_three_kinds_end_within_five_per_cent() -> None:
    """The kinds that compute train, those of quick memory generate."""
    instance = hetopt.load("post_training/64-gpus-qwen3-32b")
    data = Data(instance=instance)
    result = exact.solve(data, limits=Limits(gap=0.05))
    assert result.stop is Stop.GAP
    assert result.gap <= 0.05
    cards = {row["gpus"][0].partition("-")[0] for row in result.parts["engines"]}
    assert cards == {"h20"}
