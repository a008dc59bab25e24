"""The compiled core finds what trying all cuts and shares finds."""

from array import array
from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise, product
from random import Random
from typing import Any

import pytest
from flat import flat
from hypothesis import assume, given
from hypothesis import strategies as st
from inputs import drawn, examples
from random_pipelines import random_instance, random_pipes

from hetopt._kernels import core
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search import balancing, compiled_walks, cuts
from hetopt.search.balancing import Balancer, _Row
from hetopt.search.fast_cost import FastCost, Pipe, Slot
from hetopt.search.improving import improve
from hetopt.search.state import first_state
from hetopt.search.walking import Walk

rows_of_stages = st.lists(
    st.builds(
        _Row,
        each=st.integers(1, 10**7),
        fixed=st.integers(0, 10**7),
        cap=st.integers(1, 6),
    ),
    min_size=1,
    max_size=5,
)


def value_of(taus: Sequence[int], n: int) -> int:
    return sum(taus) + (n - 1) * max(taus)


@examples(200)
@given(rows_of_stages, st.integers(0, 10**6), st.integers(1, 2000))
def test_layers_are_cut_as_well_as_can_be(rows: list[_Row], part: int, n: int) -> None:
    most = sum(row.cap for row in rows)
    layers = len(rows) + part % (most - len(rows) + 1)
    found = balancing._best_counts(rows, layers, n)
    assert sum(found) == layers
    assert all(1 <= c <= row.cap for c, row in zip(found, rows, strict=True))
    every = product(*(range(1, row.cap + 1) for row in rows))

    def value(counts: Sequence[int]) -> int:
        pairs = zip(rows, counts, strict=True)
        return value_of([row.fixed + c * row.each for row, c in pairs], n)

    assert value(found) == min(value(c) for c in every if sum(c) == layers)


@st.composite
def stages_of_unlike_layers(draw: st.DrawFn) -> list[cuts.Row]:
    layers = draw(st.integers(1, 14))
    us = st.integers(0, 9) | st.integers(0, 10**6)

    def row() -> cuts.Row:
        times = draw(st.lists(us, min_size=layers, max_size=layers))
        runs = draw(st.lists(st.integers(0, layers), min_size=layers + 1))
        reach = accumulate(
            (min(layers, i + runs[i]) for i in range(layers + 1)), func=max
        )
        return cuts.Row(draw(us), list(accumulate(times, initial=0)), list(reach))

    return [row() for _ in range(draw(st.integers(1, 5)))]


@examples(200)
@given(
    stages_of_unlike_layers(),
    st.integers(1, 400),
    st.sampled_from((1, 1, 1, 2)),
    st.integers(1, 14),
    st.sampled_from((0, 0, 64)),
)
def test_unlike_layers_are_cut_as_well_as_can_be(
    rows: list[cuts.Row], n: int, fewest: int, most: int, shift: int
) -> None:
    layers, values = len(rows[0].sums) - 1, {}
    for inner in combinations(range(1, layers), len(rows) - 1):
        spans = [*pairwise((0, *inner, layers))]
        pairs = [*zip(rows, spans, strict=True)]
        sizes = [b - a for a, b in spans]
        able = fewest <= min(sizes) and max(sizes) <= most
        if able and all(row.reach[a] >= b for row, (a, b) in pairs):
            taus = [row.fixed + row.sums[b] - row.sums[a] for row, (a, b) in pairs]
            values[(*inner, layers)] = value_of(taus, n)
    # Times beyond the core's numbers lose bits, of which these have none.
    far = [
        cuts.Row(row.fixed << shift, [us << shift for us in row.sums], row.reach)
        for row in rows
    ]
    found = cuts.best_cuts(far, n, fewest, most)
    assert (found is None) == (not values)
    if found is not None:
        assert values[tuple(found)] == min(values.values())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("best_counts", [1, 0, 3, 1], 2, 1), OverflowError),
        (("best_counts", [1, 0, 3], 4, 1), OverflowError),
        (("best_counts", [1, 0, 1 << 62], 4, 1), OverflowError),
        (("best_counts", [], 4, 1), OverflowError),
        (("best_cuts", [0, 0, 3, 1], 1, 1, 1, 1), OverflowError),
        (("best_cuts", [0, 0, -3, 1, 1], 1, 1, 1, 1), OverflowError),
        (("best_cuts", [0, 0, 3, 1, 0], 1, 1, 1, 1), OverflowError),
        (("shared", 4, True, [1, 5, 5, 1], []), OverflowError),
        (("shared", 4, False, [1, 5, 5], []), ValueError),
        (("shared", 4, False, [0, 5, 5, 1], []), OverflowError),
    ],
)
def test_what_does_not_fit_together_is_refused(
    call: Sequence[Any], error: type[Exception]
) -> None:
    name, *words = call
    given = [array("q", word) if isinstance(word, list) else word for word in words]
    with pytest.raises(error):
        getattr(core, name)(*given)


def test_only_64_bit_whole_numbers_are_read() -> None:
    with pytest.raises(TypeError):
        core.best_counts(array("d", [1.0, 0.0, 3.0]), 2, 1)
    with pytest.raises(TypeError):
        core.best_counts([1, 0, 3], 2, 1)


def test_times_beyond_64_bits_are_balanced_but_for_their_last_bits() -> None:
    rows = [_Row(1 << 70, 0, 3), _Row(1 << 71, 5, 3)]
    assert balancing._best_counts(rows, 3, 4) == [2, 1]
    assert balancing._best_counts(rows, 3, 1 << 40) == [2, 1]


# --- walks ---------------------------------------------------------------------------


def settled(instance: Instance, keeps_memory: bool) -> Instance:
    """An instance that the core carries, with memory for most plans."""
    tree = flat(instance, exclude_unset=True)
    tree["workload"]["costs"] |= {"interleave": 1, "expert_parallel": 1}
    for node in tree["cluster"]["nodes"]:
        node["adapters"] = None
    for gpu in [] if keeps_memory else tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = 8.0
    return Instance.model_validate(tree, strict=False)


def walk_side_by_side(instance: Instance, pipes: Any, seed: int, heat: float) -> None:
    """Both walks make the same steps; the judge finds the same times."""
    cost = FastCost(instance)
    assert compiled_walks.carried(cost)
    balancer = Balancer(cost)
    state = first_state(cost, pipes)
    assume(state is not None)
    assert state is not None
    assume(all(cost.fits(pipe, len(pipes)) for pipe in state.pipes()))
    plain = Walk(state, balancer, seed)
    compiled_walk = compiled_walks.walk_from(state, Balancer(FastCost(instance)), seed)
    assert compiled_walk is not None
    assert compiled_walk.now() == plain.now()
    for begins in (False, True):
        if begins:
            compiled_walk.begin()
            plain.begin()
        for _ in range(12):
            looked_at = compiled_walk.run(10, heat * state.objective, None)
            assert looked_at == plain.run(10, heat * state.objective, None)
            assert compiled_walk.now() == plain.now()
            assert compiled_walk.objective == plain.objective
    assert compiled_walk.pipes() == plain.pipes()
    found = cost.plan(plain.pipes())
    judged = training_plan.evaluate(instance, found)
    assert judged.valid
    assert judged.objective == plain.objective
    assert plain.run(10, 0.0, plain.objective) == 0
    assert compiled_walk.run(10, 0.0, plain.objective) == 0


heats = st.sampled_from((0.0, 0.01, 0.3))


@examples(60)
@given(
    st.data(),
    st.booleans().flatmap(lambda later: drawn(random_instance, later=later)),
    st.integers(0, 2**70),
    heats,
    st.booleans(),
)
def test_walks_take_the_same_steps(
    data: st.DataObject, instance: Instance, seed: int, heat: float, tight: bool
) -> None:
    instance = settled(instance, tight)
    walk_side_by_side(instance, data.draw(drawn(random_pipes, instance)), seed, heat)


def given_to_a_walk() -> list[Any]:
    """The words of a walk on two nodes, each of them right."""
    instance = settled(random_instance(Random("core"), uniform=True), False)
    balancer = Balancer(FastCost(instance))
    layers = instance.model.layers
    oracle = compiled_walks.Oracle(balancer, [None])
    plan = array("q", [1, instance.workload.global_batch, 1, 0, 1, 0, layers, 0])
    return [oracle, 5, *compiled_walks.tables(balancer, oracle), plan]


def test_a_walk_is_made_of_tables_that_fit_together() -> None:
    words = given_to_a_walk()
    assert core.Walk(*words).best() == list(words[-1])
    for number in range(2, len(words)):
        for wrong in (words[number][:-1], array("q"), None):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                core.Walk(*words[:number], wrong, *words[number + 1 :])


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("number", [-1, 0, 99, 1 << 40, -(1 << 62)])
def test_a_walk_begins_at_a_plan_of_its_cluster(place: int, number: int) -> None:
    *words, plan = given_to_a_walk()
    right = list(plan)
    plan[place] = number
    if list(plan) == right or (place == 7 and number == 0):
        return
    with pytest.raises((ValueError, OverflowError, IndexError)):
        core.Walk(*words, plan)


def test_what_an_oracle_raises_ends_a_walk_and_leaves_it_whole() -> None:
    class Over(Exception):
        pass

    class Stops(compiled_walks.Oracle):
        left = 30

        def hop(self, *ends: int) -> int:
            self.left -= 1
            if self.left < 0:
                raise Over
            return super().hop(*ends)

    oracle, *words = given_to_a_walk()
    stops = Stops(oracle._balancer, [None])
    stops.left = 3
    walk = core.Walk(stops, *words)
    with pytest.raises(Over):
        walk.run(100_000, 1e6, -1)
    stops.left = 1 << 40
    assert walk.run(1000, 1e6, -1) == 1000
    assert walk.objective() <= core.Walk(oracle, *words).objective()


def test_times_beyond_the_cores_numbers_are_searched_in_python() -> None:
    tree = random_instance(Random("core"), uniform=True).model_dump(
        mode="json", exclude_unset=True
    )
    for gpu in tree["cluster"]["gpus"].values():
        gpu |= {"peak_tflops": 1e-9, "memory_gib": 8.0}
    instance = settled(Instance.model_validate(tree, strict=False), True)
    cost = FastCost(instance)
    state = first_state(cost, [Pipe(1, 1, (Slot(0, 1, 0, cost.layers),))])
    assert state is not None
    assert state.objective > 1 << 40
    assert compiled_walks.carried(cost)
    assert compiled_walks.walk_from(state, Balancer(cost), 0) is None
    plan = cost.plan(state.pipes())
    assert training_plan.evaluate(instance, improve(instance, plan, rounds=50)).valid


def test_a_walk_goes_on_in_python_where_numbers_grow_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def beyond(*_: Any) -> int:
        raise OverflowError

    instance = settled(random_instance(Random("core"), uniform=True), False)
    cost = FastCost(instance)
    pipe = Pipe(instance.workload.global_batch, 1, (Slot(0, 1, 0, cost.layers),))
    plan = cost.plan([pipe])
    expected = improve(instance, plan, rounds=500)
    monkeypatch.setattr(compiled_walks.CompiledWalk, "run", beyond)
    assert improve(instance, plan, rounds=500) == expected
