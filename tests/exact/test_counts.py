"""The bound by counts of GPUs: its rows of stages, its packing, and the check's own.

Method and check share no line, so that what they agree on is the statement.
"""

from itertools import product
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from random_plans import random_plan

from hetopt.costs import CostTable
from hetopt.exact.training_plan import certificate as checking
from hetopt.exact.training_plan.again import counts as again_counts
from hetopt.exact.training_plan.again import rows as again_rows
from hetopt.exact.training_plan.again.stages import Case as AskedAgain
from hetopt.exact.training_plan.counts import bound, copies, plans, rows
from hetopt.exact.training_plan.counts.bound import (
    CountBound,
    Range,
    Synchronising,
    packed,
)
from hetopt.exact.training_plan.counts.in_places import RowsInPlaces
from hetopt.exact.training_plan.counts.on_nodes import RowsOnNodes
from hetopt.exact.training_plan.counts.replicas import Runs
from hetopt.exact.training_plan.counts.rows import Rows
from hetopt.exact.training_plan.counts.stages import Stages
from hetopt.files.clusters import generate
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Instance
from hetopt.solving.certificates import Case, TrainingCertificate
from hetopt.stages import StageTable

LONG_US = 1e12
LONG = np.full((4, 5), LONG_US)  # by GPUs
GPUS = (3, 4)  # a node of three, and two nodes of two


def tiny(seed: int) -> Instance:
    """An instance whose rows of stages are looked at."""
    rng = Random(f"counts/{seed}")
    while True:
        instance = variants(random_tiny_instance(rng))[0]
        if bound.prepared(StageTable(instance)):
            return instance


def counted(instance: Instance) -> CountBound:
    found = bound.prepared(StageTable(instance))
    assert found is not None
    return found


def random_stages(seed: int, layers: int, alone: bool) -> Stages:
    rng = np.random.default_rng(seed)
    runs = len(Runs.of(layers))

    def times(*shape: int) -> Any:
        us = rng.integers(1, 50, (*shape, runs)).astype(float)
        us[rng.random(us.shape) < 0.4] = inf
        return us

    def of_nodes(gpus: int) -> Any:
        us = times(gpus + 1, gpus + 1)
        for chain, k in product(range(gpus + 1), range(gpus + 1)):
            if not 1 <= k <= chain or (alone and chain < gpus):
                us[chain, k] = inf
        return us

    within, away = (tuple(of_nodes(n) for n in (3, 2)) for _ in range(2))
    return Stages(within, away, tuple(times(3, 3) for _ in range(3)))


def least_rows(stages: Stages, layers: int, slowest: float) -> dict[Any, float]:
    """Least sums by GPUs used: every row of stages, one after another."""
    found: dict[Any, float] = {}
    for several in range(1, layers + 1):
        for used, us in least_rows_of([stages] * several, layers, slowest).items():
            found[used] = min(found.get(used, inf), us)
    return found


def least_rows_of(order: list[Stages], layers: int, slowest: float) -> dict[Any, float]:
    """The same of rows of so many stages, each of its own table."""
    runs = Runs.of(layers)
    number = {
        run: i
        for i, run in enumerate(
            zip(runs.first.tolist(), runs.last.tolist(), strict=True)
        )
    }
    found: dict[Any, float] = {}
    whole = (3, 2)

    def go_on(
        first: int, used: tuple[int, int], room: Any, us: float, laid: int
    ) -> None:
        if first == layers or laid == len(order):
            whole_row = first == layers and laid == len(order)
            if whole_row and room is None and used[0] <= GPUS[0] and used[1] <= GPUS[1]:
                found[used] = min(found.get(used, inf), us)
            return
        for last in range(first + 1, layers + 1):
            run = number[first, last]
            for after, use, time in ways(order[laid], run, room):
                if time <= slowest:
                    both = used[0] + use[0], used[1] + use[1]
                    go_on(last, both, after, us + time, laid + 1)

    def ways(stages: Stages, run: int, room: Any) -> Any:
        # A room is a kind, GPUs of its node that are used, and how many may be.
        for kind in range(2):
            if room is not None and room[0] != kind:
                continue
            _, used, told = room or (kind, 0, None)
            for chain in [told] if told else range(1, whole[kind] + 1):
                for k in range(1, chain - used + 1):
                    use = (k, 0) if kind == 0 else (0, k)
                    yield None, use, stages.away[kind][chain, k, run]
                    if chain > used + k:
                        after = (kind, used + k, chain)
                        yield after, use, stages.within[kind][chain, k, run]
        for towards, table in enumerate(stages.spread, -1):
            for use in product(range(3), range(3)):
                if room is not None and not use[room[0]]:
                    continue
                after = None if towards < 0 else (towards, 1, None)
                if towards < 0 or use[towards]:
                    yield after, use, table[(*use, run)]

    go_on(0, (0, 0), None, 0.0, 0)
    return found


@pytest.fixture(params=[rows.plainly, rows.number_by_number, rows.all_numbers, None])
def every_kernel(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows by numpy, number by number, all of them, and as a compiler makes these."""
    if request.param is not None:
        monkeypatch.setattr(rows, "compiled_whole", lambda: request.param)
    if request.param not in (None, rows.all_numbers):  # which knows no places
        monkeypatch.setattr(rows, "compiled", lambda: request.param)


@pytest.mark.usefixtures("every_kernel")
def test_least_rows_are_the_least_of_all() -> None:
    for seed, layers, alone in product(range(4), (1, 2, 3), (False, True)):
        stages = random_stages(seed, layers, alone)
        for slowest in (15.0, 30.0, 60.0):
            least = Rows(stages, Runs.of(layers), GPUS).least(slowest, LONG)
            known = least_rows(stages, layers, slowest)
            for most in product(range(GPUS[0] + 1), range(GPUS[1] + 1)):
                some = [
                    us
                    for used, us in known.items()
                    if used[0] <= most[0] and used[1] <= most[1]
                ]
                assert least[most] == min(some, default=inf)


@pytest.mark.usefixtures("every_kernel")
@pytest.mark.parametrize("whole", [0.0, 1.0])
def test_least_rows_are_told_up_to_a_most(
    whole: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_WHOLE", whole)  # all states at once, and never
    for seed, layers in product(range(4), (2, 4)):
        found = Rows(random_stages(seed, layers, False), Runs.of(layers), GPUS)
        every = found.least(40.0, LONG)
        most = np.random.default_rng(seed).integers(-20, 120, LONG.shape).astype(float)
        for axis in range(2):
            np.minimum.accumulate(most, axis, out=most)
        least = found.least(40.0, most)
        told = every <= most
        assert np.array_equal(every[told], least[told])
        assert (least[~told] > most[~told]).all()


def test_packed_pipelines_are_the_best_of_all_divisions_of_the_gpus() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        one = rng.integers(0, 9, (3, 4))
        one[0, 0] = 0
        for axis in range(2):
            one = np.maximum.accumulate(one, axis)
        for fewest, most in ((1, 2), (1, 3), (2, 2), (2, 4), (3, 4)):
            assert packed(one, fewest, most)[0] == best_division(one, fewest, most)


def best_division(one: Any, fewest: int, most: int) -> int:
    able = [tuple(use) for use in np.argwhere(one > 0).tolist()]
    best = 0

    def more(left: tuple[int, int], parts: int, taken: int) -> None:
        nonlocal best
        if parts >= fewest:
            best = max(best, taken)
        if parts == most:
            return
        for use in able:
            if use[0] <= left[0] and use[1] <= left[1]:
                rest = left[0] - use[0], left[1] - use[1]
                more(rest, parts + 1, taken + int(one[use]))

    more((one.shape[0] - 1, one.shape[1] - 1), 0, 0)
    return best


def agreeing(instance: Instance, rng: Random) -> None:
    """Stages and least sums of method and check are equal, on one instance."""
    method = counted(instance)
    record = TrainingCertificate(
        time_us=LONG_US,
        most_sync_us=1.0,
        cases=(Case(counts=1.1),),
        together=tuple(kind.speakers for kind in method.kinds),
    )
    check = checking._Check(instance, record)._counts
    sync_us = rng.choice([1e3, 1e4, 1e5, 1e6, inf])
    pipelines = rng.choice([1, 1, 2, 3])
    replicas = rng.randint(pipelines, 4)
    for number, b in enumerate(method.sizes):
        n = rng.choice([1, 2, 4])
        near = [kind for kind in range(len(method.kinds)) if rng.random() < 0.5]
        senders = method._senders(sync_us, pipelines - 1, replicas, frozenset(near))
        mine = method._tables(number, n).stages(senders)
        asked = AskedAgain(
            (pipelines, pipelines), replicas, (b,), sync_us, homes=tuple(near)
        )
        theirs = check._stages.able(b, n, asked)
        runs = Runs.of(instance.model.layers)
        for kind, each in enumerate(theirs.packed):
            for ours, other in (
                (mine.within[kind], each.near),
                (mine.away[kind], each.away),
            ):
                # Alone, only chains that use all GPUs are looked at.
                chains = slice(None if pipelines > 1 else -1, None)
                again = other[..., runs.first, runs.last]
                assert np.array_equal(ours[chains], again[chains])
        for ours, other in zip(mine.spread, theirs.spread, strict=True):
            assert np.array_equal(ours, other[..., runs.first, runs.last])
        sums = method._sums_of(number, n, senders)
        some = rng.sample(list(sums.times), min(3, len(sums.times)))
        told = [*map(again_rows._told, theirs.packed)]
        # Two of them are as many as a table may hold.
        hold = patch.object(again_rows, "_MOST_ENTRIES", 2 * check._rows.entries(told))
        with hold:
            every = check._rows.least(theirs, np.array(some))
        for slowest, again in zip(some, every, strict=True):
            assert np.array_equal(sums.least(float(slowest)), again)
        placed = method._in_places(number, n, sync_us, 0)
        if placed is None:
            continue
        alone = asked._replace(pipelines=(1, 1), replicas=1)
        places = [check._stages.able(b, n, alone, k) for k in range(1, n + 1)]
        for slowest in rng.sample(list(placed.times), min(2, len(placed.times))):
            again = check._rows.least_in_places(places, slowest)
            assert placed.least_us(slowest, LONG_US) == again


# Kinds of nodes apart, some together, and all of them.
FEW = pytest.mark.parametrize("states", [bound.MOST_STATES, 9, 0])


def look_at_few(
    instance: Instance, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinds of nodes are together until so few numbers of GPUs are left."""
    least = instance.planned_cluster.gpu_count + 1  # all as one kind
    monkeypatch.setattr(bound, "MOST_STATES", max(states, least))


@FEW
@pytest.mark.parametrize("seed", range(30))
def test_method_and_check_find_the_same_stages_and_rows(
    seed: int, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = tiny(seed)
    look_at_few(instance, states, monkeypatch)
    if seed % 2:  # however few numbers of GPUs there are, they are many
        monkeypatch.setattr(bound, "_FEW_STATES", 0)
        monkeypatch.setattr(bound, "_MANY", 0)
    agreeing(instance, Random(seed))


@FEW
@pytest.mark.parametrize("seed", range(40))
def test_no_time_of_a_best_plan_is_refuted_by_its_own_range(
    seed: int, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = tiny(1_000 + seed)
    look_at_few(instance, states, monkeypatch)
    best = best_training_plan(instance)
    if best is None:
        return
    time_us, plan = best
    costs = instance.workload.costs
    left = (time_us - float(costs.iteration_overhead_us)) / float(costs.pipeline_factor)
    some = len(plan.pipelines)
    method = counted(instance).within(2 * left, lambda: None)
    sizes = range(len(method.sizes))
    every = Range(some, some, some, sizes, (Synchronising(),))
    assert method.refuted(every, left).ratio is None


@FEW
@pytest.mark.parametrize("seed", range(60))
def test_nor_is_any_plan_by_what_its_stages_synchronise(
    seed: int, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = tiny(3_000 + seed)
    if instance.workload.costs.sync_overlap != "none":
        return
    look_at_few(instance, states, monkeypatch)
    method = counted(instance)
    sizes = range(len(method.sizes))
    for number in range(20):
        plan = random_plan(instance, number)
        found = judge.evaluate(instance, plan)
        if not found.valid:
            continue
        # Parts are before factors, in whole us.
        left = 1.0 + max(found.parts["pipeline_us"])
        by = Synchronising(1.0 + found.parts["sync_us"])
        there_are = len(plan.pipelines)
        each = Range(there_are, there_are, there_are, sizes, (by,))
        again = method.within(2 * left, lambda: None).refuted(each, left)
        assert again.ratio is None


def tight_row(layers: int) -> Instance:
    """As many GPUs as layers, each with room for a layer in its place, and no more."""
    names = [f"n{i}" for i in range(layers)]
    tree = {
        "name": "row",
        "model": {"name": "m", "layers": layers, "hidden": 1024, "heads": 8}
        | {"vocabulary": 0, "parameters_per_layer": 10_000_000},
        "cluster": {
            "gpus": {"A": {"peak_tflops": 50, "memory_gib": 80}},
            "nodes": [{"name": name, "gpu": "A", "count": 1} for name in names],
            "inter": {"gbytes_per_s": 5},
        },
        "workload": {"sequence_length": 512, "global_batch": 8}
        | {"micro_batch_sizes": [1], "costs": {"recompute": "none"}},
    }
    ample = Instance.model_validate(tree, strict=False)
    need = CostTable(ample).stage_mib("n0", range(1), 1, 1, 8, layers, 0)
    tree["cluster"]["gpus"]["A"]["memory_gib"] = (sum(need.values()) + 1) / 1024
    return Instance.model_validate(tree, strict=False)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_what_follows_a_stage_is_as_near_to_the_end_as_it_fits(
    layers: int, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far from the end the stage itself is looked at."""
    if many:
        monkeypatch.setattr(bound, "_FEW_STATES", 0)
        monkeypatch.setattr(bound, "_MANY", 0)
        monkeypatch.setattr(again_counts, "_MOST_APART", 0)
    instance = tight_row(layers)
    best = best_training_plan(instance)
    assert best is not None
    assert len(best[1].pipelines[0].stages) == layers
    left = float(best[0])
    method = counted(instance).within(2 * left, lambda: None)
    alone = Range(1, 1, 1, range(1), (Synchronising(),))
    assert method.refuted(alone, left).ratio is None
    assert method.refuted(alone, left - 1).ratio is not None
    forged = TrainingCertificate(
        time_us=left, most_sync_us=1.0, cases=(Case(counts=1.1),) * 2
    )
    assert checking.missing(instance, forged, best[0])
    again = checking._Check(instance, forged)._counts
    asked = AskedAgain((1, 1), 1, (1,))
    assert not again.refute([asked], left)
    assert again.refute([asked], left - 1)


def later(stages: Stages, rng: Any) -> Stages:
    """The same with less memory: some stages do not fit, others take longer."""

    def less(us: Any) -> Any:
        us = us + rng.integers(0, 9, us.shape[-1])
        us[rng.random(us.shape) < 0.2] = inf
        return us

    each = (stages.within, stages.away, stages.spread)
    return Stages(*(tuple(map(less, tables)) for tables in each))


def least_in_places(places: list[Stages], layers: int, slowest: float) -> float:
    """The least sum of all rows, one after another, from the first stage on."""
    found = inf
    for several in range(1, min(layers, sum(GPUS)) + 1):
        order = [places[min(k, len(places) - 1)] for k in range(several)][::-1]
        rows_ = least_rows_of(order, layers, slowest)
        found = min([found, *rows_.values()])
    return found


@pytest.mark.usefixtures("every_kernel")
def test_least_rows_in_places_are_the_least_of_all() -> None:
    for seed, layers in product(range(4), (1, 2, 3, 4)):
        rng = np.random.default_rng(seed)
        places = [random_stages(seed, layers, alone=True)]
        places += [later(places[0], rng)]
        places += [later(places[1], rng)]
        for slowest in (25.0, 60.0):
            method = RowsInPlaces(places, Runs.of(layers), GPUS)
            least = least_in_places(places, layers, slowest)
            assert method.least_us(slowest, LONG_US) == least


def test_a_least_row_holds_all_layers_in_the_gpus_that_there_are() -> None:
    for seed, layers in product(range(6), (1, 2, 3)):
        rows_ = Rows(random_stages(seed, layers, alone=False), Runs.of(layers), GPUS)
        least = rows_.least(60.0, LONG)
        row = rows_.least_row(60.0)
        if np.isinf(least.flat[-1]):
            assert not row
            continue
        cuts = [0, *(stage.last for stage in row)]
        assert [stage.first for stage in row] == cuts[:-1]
        assert cuts[-1] == layers
        used = np.sum([stage.use for stage in row], axis=0)
        assert least[tuple(used)] == least.flat[-1]


def test_chains_that_divide_a_node_are_rows_too_and_use_all_their_gpus() -> None:
    for seed, layers in product(range(6), (1, 2, 3)):
        stages, runs = random_stages(seed, layers, alone=True), Runs.of(layers)
        least = Rows(stages, runs, GPUS).least(60.0, LONG)
        on_nodes = RowsOnNodes(stages, runs, GPUS)
        assert (on_nodes.least(60.0, LONG) >= least).all()
        chain = 0
        for stage in on_nodes.least_row(60.0):
            chain += sum(stage.use) if stage.packed else 0
            if stage.packed and stage.together is None:
                assert chain in (1, 2, 3)
                chain = 0


def test_plans_of_rows_are_no_better_than_the_best_of_all_plans() -> None:
    laid = 0
    for seed in range(30):
        instance = tiny(2_000 + seed)
        best = best_training_plan(instance, several_replicas=True)
        method = counted(instance)
        for plan in plans.pipelines(method):
            found = judge.evaluate(instance, plan)
            if found.valid:
                assert best is not None
                assert found.objective >= best[0]
                laid += 1
    assert laid


@pytest.mark.parametrize("family", ["equal", "unequal", "steep", "islands"])
def test_copies_are_equal_pipelines_beside_each_other_in_every_node(
    family: str,
) -> None:
    instance = generate(family, size="16", seed=0)
    times = []
    for plan in copies.pipelines(instance, lambda: min(times, default=inf)):
        found = judge.evaluate(instance, plan)
        if found.valid:
            times.append(float(found.objective))
        nodes = [
            [(stage.layers, [r.node for r in stage.replicas]) for stage in p.stages]
            for p in plan.pipelines
        ]
        assert nodes == [nodes[0]] * len(nodes)
        gpus = [gpu for replica in plan.replicas() for gpu in replica.gpus]
        assert len(gpus) == len({*gpus})
    assert times


def test_copies_are_none_where_no_node_has_room_for_two() -> None:
    instance = tiny(0)
    cluster = instance.planned_cluster
    one = [node.model_copy(update={"count": 1}) for node in cluster.nodes]
    alone = instance.model_copy(update={"cluster": cluster.only(one)})
    assert not [*copies.pipelines(alone, lambda: inf)]
