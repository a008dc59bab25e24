"""Espresso's Fig. 3 and 4: partitions against all of them, timelines by hand."""

from itertools import product

import _espresso_figures as script
import pytest

from hetopt.problems import provisioning as judge


@pytest.mark.parametrize("word", ["AD", "DA", "BC"])
def test_the_optimal_partition_is_the_judges_best(word: str) -> None:
    data = script.llama_18b().model_copy(update={"layers": 9})
    placements = script.Placements(data)
    whale, optimal = placements.both(word)
    order = [placements.number[letter] for letter in word]
    every = []
    for given in product(range(1, 9), repeat=2):
        if sum(given) == 9:
            plan = placements.stock.plan(tuple(zip(order, given, strict=True)))
            found = judge.evaluate(data, plan)
            if found.valid:
                every.append(found.parts["iteration_us"])
    assert optimal.iteration_us == min(every)
    assert whale.iteration_us in every


def test_timeline_ends_no_later_than_the_judge_has_it() -> None:
    placements = script.Placements(script.llama_18b())
    for plan in placements.both("DCBA"):
        rows = list(script.timeline(placements.stock, plan))
        assert max(row["simulated end, s"] for row in rows) <= (
            plan.iteration_us / 1e6 + 1e-9
        )
        for row, (t, layers) in zip(rows, plan.stages, strict=True):
            kind = placements.stock.kinds[t]
            assert row["gradients, s"] == pytest.approx(layers * kind.sync_us / 1e6)
            assert row["idle until then, s"] >= 0


def test_alike_stages_end_when_the_closed_form_says() -> None:
    """Three stages of two layers on one type: P - 1 fillings, n passes."""
    stock = script.Placements(script.llama_18b()).stock
    line = script.events(stock, ((1, 2), (1, 2), (1, 2)))
    one = 2 * stock.kinds[1].layer_us
    assert line.total_us == (stock.micro_batches + 2) * one
