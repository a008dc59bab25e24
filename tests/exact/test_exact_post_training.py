"""Post-training: statements beside brute force, short bounds, and certificates."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tiny_post_training as tiny
from inputs import trials

import hetopt
from hetopt import registry
from hetopt.api.proving import check_bound
from hetopt.errors import Unsupported
from hetopt.exact import post_training as exact
from hetopt.exact.checking import divisions
from hetopt.exact.post_training.prices import Prices
from hetopt.modelling import Limits
from hetopt.problems.post_training import Data
from hetopt.result import Proof, Result, Stop
from hetopt.search.halves import Division, Halves, Trained
from hetopt.solving import statements
from hetopt.solving.certificates import DivisionCertificate


def drawn(seed: int) -> Data:
    return tiny.drawn(Random(f"post {seed}"))


class Known(Halves):
    """Divisions whose best training plans are found, by trying all, when looked at."""

    def look(self, division: Division, *_: Any, **__: Any) -> Trained:
        nodes = self.data.instance.planned_cluster.nodes
        some = {x.name: x.count for x in self.trainers(division)}
        counts = [some.get(x.name, x.count * (division is None)) for x in nodes]
        best = tiny.trained(self.data.instance, counts)
        return Trained(*(best[0], *best) if best else (None,))


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
    halves, none = Halves(data), (0,) * len(Halves(data).units)
    least = halves.trained(halves.units).at_least_us
    assert least is not None
    box = halves.way(halves.units, least, halves.rooms(none, least=True))
    ways = [way.us for way in (halves.way(None, least),) if way is not None]
    ways += [] if box is None else [Prices(halves).least(none, halves.units, box)[0]]
    assert min(ways) <= best


# --- certificates ------------------------------------------------------------------


def proved(data: Data) -> tuple[Result, DivisionCertificate]:
    result = exact.solve(data, limits=Limits())
    assert isinstance(result.certificate, DivisionCertificate)
    return result, result.certificate


@pytest.mark.parametrize("most", trials(20, 300))
def test_no_certificate_is_of_a_step_that_a_plan_has(most: int) -> None:
    """Those that are found hold, those that forgers change to say more do not."""
    for seed in range(most):
        data = drawn(seed)
        if (best := tiny.best(data)) is None:
            continue
        result, found = proved(data)
        assert result.objective == best, seed
        assert divisions.missing(data, found) == [], seed
        assert found.time_us < best, seed
        for price in (None, 0, 10**6, 10**9, 10**12):
            boxes = tuple(x.model_copy(update={"answer": price}) for x in found.boxes)
            forged = found.model_copy(update={"time_us": best, "boxes": boxes})
            assert divisions.missing(data, forged), (seed, price)


def test_boxes_of_fewer_divisions_prove_nothing() -> None:
    data = Data(instance=hetopt.load("post_training/tiny"))
    _, found = proved(data)
    first, *others = found.boxes
    shorter = first.model_copy(update={"low": first.low[1:]})
    turned = first.model_copy(update={"low": first.high, "high": first.low})
    changes: list[tuple[Any, ...]] = [(), (first, first), (shorter,), (turned,)]
    for change in changes:
        boxes = *change, *others
        assert divisions.missing(data, found.model_copy(update={"boxes": boxes}))
    few = found.model_copy(update={"prices": found.prices[1:]})
    assert divisions.missing(data, few)
    with pytest.raises(Unsupported, match="solve again"):
        exact.recheck(data, found, found.time_us + 2)


@pytest.fixture(scope="module")
def large() -> Result:
    data = Data(instance=hetopt.load("post_training/64-gpus-qwen3-32b"))
    return exact.solve(data, limits=Limits(gap=0.05))


def test_the_bound_of_a_saved_result_is_checked(large: Result, tmp_path: Path) -> None:
    file, document = tmp_path / "rl.json", large.to_file()
    file.write_text(json.dumps(document), encoding="utf-8")
    found = check_bound(file)
    assert (found.missing, found.proof) == ((), Proof.CERTIFICATE)
    document["certificate"]["boxes"].pop()
    file.write_text(json.dumps(document), encoding="utf-8")
    (missing,) = check_bound(file).missing
    assert "not all divisions" in missing


@pytest.mark.parametrize("part", ["training", "answer"])
def test_boxes_need_training_and_prices(large: Result, part: str) -> None:
    found = large.certificate
    assert isinstance(found, DivisionCertificate)
    empty = {"training": found.turn, "answer": 0}[part]
    boxes = [x.model_copy(update={part: empty}) for x in found.boxes]
    changed = found.model_copy(update={"boxes": tuple(boxes)})
    assert boxes != [*found.boxes]
    assert divisions.missing(large.data, changed)


def test_64_gpus_of_three_kinds_end_within_five_per_cent(large: Result) -> None:
    """The kinds that compute train, those of quick memory generate."""
    assert large.stop is Stop.GAP
    assert large.gap is not None
    assert large.gap <= 0.05
    cards = {row["gpus"][0].partition("-")[0] for row in large.parts["engines"]}
    assert cards == {"h20"}
