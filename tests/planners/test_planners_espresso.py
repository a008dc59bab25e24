"""Espresso's planners: never wrong, never better than the optimum, and as published."""

from itertools import permutations, product
from typing import Any

import pytest
from brute_force import compositions, provisionings
from hypothesis import given
from inputs import examples, tiny_problems

from hetopt.exact import provisioning as exact
from hetopt.files import load_problem
from hetopt.modelling import Limits
from hetopt.planners import espresso, espresso_placer, hph_plus, whale_plus
from hetopt.planners.espresso import tables, tree
from hetopt.planners.espresso.tree import Pruning
from hetopt.problems import provisioning as judge
from hetopt.result import Status

PLACERS = {
    "espresso": espresso_placer.place,
    "whale_plus": whale_plus.place,
    "hph_plus": hph_plus.place,
}
LETTERS = {"A6000": "A", "A30": "B", "RTX3090": "C", "A4000": "D"}
PROBLEMS = tiny_problems("provisioning")
NO_PRUNING = Pruning(boundary=False, cost=False, time=False, capacity=False)


def asking(data: Any, deadline_s: float | None = None) -> Any:
    return data.model_copy(update={"deadline_s": deadline_s, "budget_usd": None})


def job(name: str) -> Any:
    return load_problem(f"espresso/{name}")[1]


# --- placers -------------------------------------------------------------------------


def allocations(stock: Any, most: int) -> list[tuple[int, ...]]:
    """Every allocation within the quotas of at most `most` stages."""
    ranges = [range(kind.stages + 1) for kind in stock.kinds]
    return [c for c in product(*ranges) if 0 < sum(c) <= min(most, stock.max_stages)]


def stocks(data: Any) -> list[Any]:
    return [tables.Stock.of(data, d) for d in data.data_parallel]


def pipelines(stock: Any, order: Any) -> list[Any]:
    """Every split of the layers over stages in an order that fits."""
    return [
        tuple(zip(order, sizes, strict=True))
        for sizes in compositions(stock.layers, len(order))
        if all(
            size <= stock.room(t, s, len(order))
            for s, (t, size) in enumerate(zip(order, sizes, strict=True))
        )
    ]


@pytest.mark.parametrize("placer", PLACERS)
@examples(12)
@given(data=PROBLEMS)
def test_a_placement_uses_the_whole_allocation_and_fits(placer: str, data: Any) -> None:
    for stock in stocks(data):
        for counts in allocations(stock, 3):
            stages = PLACERS[placer](stock, counts)
            if stages is not None:
                assert tables.allocation_of(stock, stages) == counts
                assert stages in pipelines(stock, [t for t, _ in stages])


@examples(12)
@given(PROBLEMS)
def test_hph_splits_the_layers_of_its_order_as_well_as_trying_all(data: Any) -> None:
    for stock in stocks(data):
        for counts in allocations(stock, 3):
            peaks = [kind.peak for kind in stock.kinds]
            kinds = sorted(range(len(counts)), key=lambda t: (peaks[t], t))
            order = [t for t in kinds for _ in range(counts[t])]
            times = [stock.iteration_us(p) for p in pipelines(stock, order)]
            found = hph_plus.place(stock, counts)
            if found is not None:
                assert stock.iteration_us(found) == min(times)


@examples(12)
@given(PROBLEMS.map(asking))
def test_the_estimator_is_the_judges_time_and_price(data: Any) -> None:
    for plan in list(provisionings(data))[::7]:
        found = judge.evaluate(data, plan)
        stock = tables.Stock.of(data, plan.data_parallel)
        names = [kind.gpu for kind in stock.kinds]
        if not found.valid:
            continue
        stages = tuple((names.index(s.gpu), s.layers) for s in plan.stages)
        assert stock.iteration_us(stages) == found.parts["iteration_us"]
        price = stock.price(tables.allocation_of(stock, stages))
        assert price / 1e6 == pytest.approx(found.parts["usd_per_hour"])


@examples(12)
@given(PROBLEMS)
def test_no_placement_is_faster_than_the_bound_that_spares_the_placer(
    data: Any,
) -> None:
    for stock in stocks(data):
        for counts in allocations(stock, 3):
            bag = [t for t, n in enumerate(counts) for _ in range(n)]
            bound = tree.least_us(stock, counts)
            for order in set(permutations(bag)):
                for stages in pipelines(stock, order):
                    assert stock.iteration_us(stages) >= bound


# --- the cost tree -------------------------------------------------------------------


@examples(15)
@given(PROBLEMS)
def test_without_pruning_every_allocation_is_placed(data: Any) -> None:
    wish = tables.Wish.of(data)
    values = []
    placed = 0
    for stock in stocks(data):
        for counts in allocations(stock, data.max_stages):
            placed += 1
            stages = whale_plus.place(stock, counts)
            if stages is None:
                continue
            time, price = stock.iteration_us(stages), stock.price(counts)
            if wish.grants(time, price):
                values.append(wish.value(time, price))
    search = tree.search_all(data, whale_plus.place, pruning=NO_PRUNING)
    assert search.counters.placed == placed
    assert search.value == min(values, default=float("inf"))


def test_a_deeper_search_looks_at_more_trees_and_finds_what_lies_there() -> None:
    """The counterexample's optimum has more stages than the prototype looks at."""
    data = job("counterexample-llama-1.3b")
    searches = [
        tree.search_all(data, espresso.place, pruning=Pruning.to(depth))
        for depth in ("published", "released", "any")
    ]
    trees = [search.counters.trees for search in searches]
    assert trees[0] < trees[1] < trees[2]
    published, released, deepest = (search.value for search in searches)
    assert published >= released > deepest
    proved = exact.solve(data, limits=Limits(time_s=60))
    found = judge.evaluate(data, espresso.plan(data, depth="any"))
    assert found.objective == proved.objective


def test_published_boundaries_are_the_stages_of_largest_and_smallest_memory() -> None:
    for stock in stocks(job("vit")):
        within = tree.boundary(stock, 0)
        alone = [
            next(
                k
                for k in range(1, stock.max_stages + 1)
                if sum(stock.room(t, s, k) for s in range(k)) >= stock.layers
            )
            for t in range(len(stock.kinds))
        ]
        assert (within[0], within[-1]) == (min(alone), max(alone))


# --- the paper -----------------------------------------------------------------------


def row(name: str, allocation: str, d: int, placer: str) -> tuple[str, list[int]]:
    """A row of Table IV: types in order, and layers, embedding and head among them."""
    stock = tables.Stock.of(job(name), d)
    counts = tuple(allocation.count(LETTERS[kind.gpu]) for kind in stock.kinds)
    stages = PLACERS[placer](stock, counts)
    layers = [size for _, size in stages]
    layers[0] += 1
    layers[-1] += 2
    return "".join(LETTERS[stock.kinds[t].gpu] for t, _ in stages), layers


def test_table_4_of_the_paper_for_llama_1_3b() -> None:
    assert row("llama-1.3b", "ABBD", 8, "whale_plus") == ("ABBD", [9, 6, 6, 5])
    assert row("llama-1.3b", "ABBD", 8, "espresso") == ("DABB", [6, 6, 6, 8])
    order, layers = row("llama-1.3b", "ABBD", 8, "hph_plus")
    assert order == "DABB"  # the layers differ: our optimum is Espresso's own row
    assert layers == [6, 6, 6, 8]


@pytest.mark.parametrize(
    "name", ["llama-1.3b", "llama-3b", "llama-7b", "vit", "counterexample-llama-1.3b"]
)
def test_on_the_papers_jobs_plans_are_valid_and_none_beats_the_proof(name: str) -> None:
    """The counterexample's is further from the optimum than the paper says."""
    data = job(name)
    proved = exact.solve(data, limits=Limits(time_s=60))
    assert proved.status is Status.OPTIMAL
    found = judge.evaluate(data, espresso.plan(data))
    assert found.valid
    assert found.objective >= proved.objective
    if name.startswith("counterexample"):
        assert found.objective > proved.objective * 1045 / 1000
    else:
        assert found.objective <= proved.objective * 11 / 10
