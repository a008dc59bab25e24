"""Every statement on every back end that carries it, against brute force."""

import json
import re
from fractions import Fraction
from functools import cache
from itertools import count, islice
from random import Random
from typing import Any

import brute_force
import pytest
import random_data
from soaking.subproblems import no_lie

from hetopt import problems, registry
from hetopt.errors import BackendMissing, Unsupported
from hetopt.files import load_problem
from hetopt.modelling import Answer, Limits
from hetopt.problems import Objective, device_grouping, layer_partition
from hetopt.result import Result, Status, Stop
from hetopt.solving import statements

ENUMERATED = ("device_grouping", "layer_partition", "provisioning")
SEEDS = range(60)  # enough to notice the loss of any family whose loss is ever seen
FEWER = range(8)  # enough to notice a back end that carries a family wrongly


def carried(wanted: tuple[str, ...] = ENUMERATED) -> list[Any]:
    """(problem, statement, back end), as test parameters."""
    found = []
    for name in registry.names("formulations"):
        module: Any = registry.entry("formulations", name)
        if module.problem in wanted:
            for backend in getattr(module, "backends", registry.names("backends")):
                label = f"{name}-{backend}"
                found.append(pytest.param(module.problem, name, backend, id=label))
    return found


every_statement = pytest.mark.parametrize(
    ("problem", "name", "backend"), carried(), ids=str
)


@cache
def enumerated(problem: str, seed: int) -> tuple[Any, Objective | None]:
    data = random_data.tiny(problem, seed)
    return data, brute_force.best(problem, data)


def is_first(name: str, backend: str) -> bool:
    """Return whether a back end is the one that has the most draws of a statement."""
    module: Any = registry.entry("formulations", name)
    first, *_ = getattr(module, "backends", registry.names("backends"))
    return bool(backend == first)


def check(problem: str, name: str, backend: str, seed: int) -> None:
    data, best = enumerated(problem, seed)
    result = statements.solve(problem, data, name, backend)
    said = (seed, result.status.value, result.objective)
    assert said == (seed, "infeasible" if best is None else "optimal", best)
    assert result.stop is Stop.PROVED
    if best is None:
        assert result.bound is None
    else:
        assert result.bound.value == best


def small_enough(name: str, seeds: Any) -> Any:
    """The literal statement of device grouping takes seconds beyond three devices."""
    if name != "device_grouping":
        return seeds
    few = (
        seed
        for seed in count()
        if random_data.tiny("device_grouping", seed).devices <= 3
    )
    return islice(few, len(seeds))


@every_statement
def test_a_statement_agrees_with_brute_force(
    problem: str, name: str, backend: str
) -> None:
    """A family that is lost is lost on every back end: one of them has all seeds."""
    seeds = SEEDS if is_first(name, backend) else FEWER
    for seed in small_enough(name, seeds):
        check(problem, name, backend, seed)


# --- warm starts -----------------------------------------------------------------


@every_statement
def test_a_warm_start_satisfies_every_constraint(
    problem: str, name: str, backend: str
) -> None:
    """All variables are fixed to the hint: the plan itself must come back."""
    if name == "device_grouping":
        pytest.skip("its hint leaves the continuous variables to the solver")
    module: Any = registry.entry("formulations", name)
    for seed in islice(SEEDS, 15 if is_first(name, backend) else 4):
        data, best = enumerated(problem, seed)
        valid = list(islice(brute_force.valid(problem, data), 2000))
        for value, plan in [*valid[:2], *(pair for pair in valid if pair[0] == best)][
            :3
        ]:
            cases = module.cases(data) if hasattr(module, "cases") else [data]
            hints = [(case, module.hint(case, plan)) for case in cases]
            # A statement may leave out plans that are worse than one it knows.
            case, hint = next((pair for pair in hints if pair[1]), (None, {}))
            if case is None:
                assert value != best
                continue
            model: Any = registry.entry("backends", backend).backend("fixed")
            read = module.build(case, model)
            assert set(hint) == set(model.variables)
            for variable, fixed in hint.items():
                model.add("fixed", variable, model.variables[variable] == fixed)
            answer = model.solve(Limits(), lambda *_: None)
            assert answer.value is not None
            again = problems.get(problem).evaluate(data, read(answer.value))
            assert again.objective == value


# --- what the runner refuses -----------------------------------------------------


def test_a_statement_of_another_problem_is_refused_with_the_fitting_ones() -> None:
    data = random_data.tiny("device_grouping", 0)
    fitting = "expected one of device_grouping, device_grouping_counts"
    with pytest.raises(Unsupported, match=fitting):
        statements.solve("device_grouping", data, "provisioning", "cpsat")


# --- limits, bounds, progress ----------------------------------------------------


@pytest.mark.parametrize("problem", ENUMERATED)
def test_progress_stays_on_its_side_of_the_optimum(problem: str) -> None:
    for seed in range(4):
        data, best = enumerated(problem, seed)
        for _, name, backend in (case.values for case in carried((problem,))):
            if best is None or name == "device_grouping":
                continue
            seen: list[tuple[Any, Any]] = []
            result = statements.solve(
                problem,
                data,
                name,
                backend,
                report=lambda *now, to=seen: to.append(now),
            )
            assert [(p.incumbent, p.bound) for p in result.trace] == seen
            minimise = result.sense == "minimise"
            for incumbent, bound in seen:
                for value in [incumbent] if incumbent is not None else []:
                    assert value >= best if minimise else value <= best
                for value in [bound] if bound is not None else []:
                    assert value <= best if minimise else value >= best


# --- bounds of float solvers -----------------------------------------------------


MAGNIFIED = re.compile("gflops|mib$|_us$|deadline|budget")
MOST = 10**9 - 1


def magnified(problem: str, seed: int) -> Any:
    """A tiny problem; sizes, and all else, are up to 1e9 times as large, unevenly."""
    random = Random(f"magnified {problem} {seed}")
    sizes, others = 10 ** random.uniform(0, 9), 10 ** random.uniform(0, 9)

    def larger(tree: Any, name: str = "") -> Any:
        if isinstance(tree, dict):
            return {key: larger(value, key) for key, value in tree.items()}
        if isinstance(tree, list):
            return [larger(value, name) for value in tree]
        if tree is None or not MAGNIFIED.search(name):
            return tree
        grown = tree * (sizes if name.endswith("mib") else others)
        grown = min(MOST, int(grown) + random.choice([0, 0, 1]))
        return type(tree)(grown)

    tiny = random_data.tiny(problem, seed)
    tree = larger(tiny.model_dump(mode="json"))
    return type(tiny).model_validate_json(json.dumps(tree))


@pytest.mark.parametrize(
    ("problem", "name", "backend"),
    [case for case in carried() if case.values[2] != "cpsat"],
)
def test_floats_claim_nothing_wrong_of_numbers_of_any_size(
    problem: str, name: str, backend: str
) -> None:
    for seed in small_enough(name, range(4)):
        data = magnified(problem, seed)
        best = brute_force.best(problem, data)
        limits = Limits(time_s=2)
        result = statements.solve(problem, data, name, backend, limits=limits)
        assert no_lie(result, best, (seed, data))


def stages_of(times: int) -> layer_partition.Data:
    """Two stages, where no row differs by less than one us in `times`."""
    return layer_partition.Data(
        layer_mib=(1, 1, 1),
        in_flight_mib=(0, 0, 0),
        stages=tuple(
            layer_partition.Stage(
                name=f"s{s}", memory_mib=9, layer_us=(times + s, times, times + 1)
            )
            for s in range(2)
        ),
        micro_batches=3,
    )


@pytest.mark.parametrize("backend", ["scip", "pulp"])
@pytest.mark.parametrize("name", ["layer_partition", "layer_partition_cuts"])
def test_where_floats_prove_nothing_the_exact_back_end_does(
    name: str, backend: str
) -> None:
    for times, source in ((10**3, backend), (10**8, "cpsat")):
        data = stages_of(times)
        result = statements.solve("layer_partition", data, name, backend)
        assert result.status is Status.OPTIMAL
        assert result.objective == brute_force.best("layer_partition", data)
        assert result.bound.source.startswith(source)
        assert result.method.backend == backend


def test_without_an_exact_back_end_a_doubtful_proof_leaves_the_plan_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = registry.entry

    def entry(folder: str, name: str) -> Any:
        if (folder, name) == ("backends", "cpsat"):
            raise BackendMissing("cpsat", "ortools")
        return real(folder, name)

    monkeypatch.setattr(registry, "entry", entry)
    data = stages_of(10**8)
    result = statements.solve("layer_partition", data, "layer_partition", "scip")
    assert (result.status, result.stop) == (Status.FEASIBLE, Stop.GAP)
    assert result.bound is None
    assert "sums near" in result.reasons[0]
    assert "use cpsat" in result.reasons[0]


def test_infeasible_in_floats_is_undecided_where_nothing_can_confirm_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "_exactly_carried", lambda *_: None)
    tight = stages_of(10**8).model_copy(update={"layer_mib": (10, 10, 10)})
    for data, wanted in (
        (tight, Status.UNDECIDED),
        (stages_of(10).model_copy(update={"layer_mib": (10,) * 3}), Status.INFEASIBLE),
    ):
        result = statements.solve("layer_partition", data, "layer_partition", "scip")
        assert result.status is wanted
        assert result.bound is None


def pretended(
    monkeypatch: pytest.MonkeyPatch, scale: int, claimed: float, shift: int = 0
) -> Result:
    """A partition whose optimum is 7 x scale, by solvers that claim another."""
    data = layer_partition.Data(
        layer_mib=(1, 1),
        in_flight_mib=(0, 0),
        stages=(
            layer_partition.Stage(
                name="a", memory_mib=9, layer_us=(3 * scale, 4 * scale)
            ),
        ),
        micro_batches=1,
    )
    real = registry.entry("backends", "cpsat").backend

    def backend(name: str) -> Any:
        model: Any = real(name)
        solve = model.solve

        def pretend(*asked: Any) -> Answer:
            value = solve(*asked).value
            told = (Status.OPTIMAL, Stop.PROVED, claimed, claimed)
            return Answer(*told, value=lambda x: value(x) + shift)

        model.solve = pretend
        return model

    for name in ("scip", "cpsat"):
        monkeypatch.setattr(registry.entry("backends", name), "backend", backend)
    return statements.solve("layer_partition", data, "layer_partition", "scip")


@pytest.mark.parametrize(
    ("scale", "claimed", "status", "stop", "bound"),
    [
        (1, 7.0000004, Status.OPTIMAL, Stop.PROVED, 7),
        (10**7, 7e7, Status.FEASIBLE, Stop.GAP, 7 * 10**7 - 70),
    ],
    ids=["confirmed", "blurred"],
)
def test_a_float_optimum_is_confirmed_unless_the_tolerance_blurs_it(
    monkeypatch: pytest.MonkeyPatch,
    scale: int,
    claimed: float,
    status: Status,
    stop: Stop,
    bound: int,
) -> None:
    result = pretended(monkeypatch, scale=scale, claimed=claimed)
    assert (result.status, result.stop) == (status, stop)
    assert result.objective == 7 * scale
    assert result.bound.value == bound


def test_a_plan_that_a_float_solver_gets_wrong_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = pretended(monkeypatch, scale=1, claimed=7.0, shift=1)
    assert (result.status, result.plan) == (Status.UNDECIDED, None)
    assert "breaks a rule: every_layer_once" in result.reasons[0]


@pytest.mark.parametrize("seed", range(40))
def test_the_grouping_bound_is_the_next_reachable_value(seed: int) -> None:
    """`bound` of the literal statement, against all values of all plans."""
    from hetopt.formulations import device_grouping as literal

    data = random_data.tiny("device_grouping", seed)
    values = sorted({v for v, _ in brute_force.valid("device_grouping", data)})
    for value in values:
        at = Fraction(value) / literal.unit(data)
        assert literal.bound(data, at) == value
        assert value <= literal.bound(data, at + Fraction(1, 1000))


def grouping(gpus: int, types: int, floor_mib: int) -> device_grouping.Data:
    """Equal numbers of AutoHet's types of GPU."""
    rows = [("A100", 312, 80), ("H800", 989, 80), ("H20", 148, 96), ("V100", 125, 32)]
    listed = tuple(
        device_grouping.DeviceType(
            type=name, count=gpus // types, gflops=1000 * tflops, memory_mib=1024 * gib
        )
        for name, tflops, gib in rows[:types]
    )
    return device_grouping.Data(
        gpus=listed, minimum_memory_mib=floor_mib, micro_batches=16
    )


@pytest.mark.parametrize(
    ("name", "backend", "data"),
    [
        *(
            ("device_grouping_patterns", "pulp", grouping(*sizes))
            for sizes in ((24, 3, 137_216), (20, 4, 90_000), (48, 2, 137_216))
        ),
        ("provisioning_allocations", "cpsat", load_problem("espresso/llama-3b")[1]),
    ],
)
def test_statements_prove_what_the_exact_method_proves(
    name: str, backend: str, data: Any
) -> None:
    """Beyond what can be enumerated; the two share no line."""
    problem = registry.entry("formulations", name).problem
    best = registry.entry("exact", problem).solve(data, limits=Limits())
    result = statements.solve(problem, data, name, backend)
    assert best.status is result.status is Status.OPTIMAL
    assert result.objective == best.objective


def many_offers() -> Any:
    """Espresso's offers, three times each, and many stages of each."""
    _, data = load_problem("espresso/llama-3b")
    offers = tuple(
        offer.model_copy(update={"gpu": f"{offer.gpu}{n}", "quota": 64})
        for n in range(3)
        for offer in data.offers
    )
    return data.model_copy(update={"offers": offers})


def equal_stages(stages: int, layers: int, micro_batches: int) -> Any:
    """Stages of different speeds, with room for all layers, in any order."""
    return layer_partition.Data(
        layer_mib=(1,) * layers,
        in_flight_mib=(0,) * layers,
        stages=tuple(
            layer_partition.Stage(
                name=f"s{n}", memory_mib=10**6, layer_us=(n + 1,) * layers
            )
            for n in range(stages)
        ),
        micro_batches=micro_batches,
        order="free",
    )


LARGE_GROUPS = 15 * 81_920


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (
            "device_grouping_patterns",
            grouping(400, 3, LARGE_GROUPS),
            "different counts",
        ),
        ("device_grouping_patterns", grouping(60, 3, LARGE_GROUPS), "patterns"),
        ("layer_partition_runs", equal_stages(4, 400, 4), "use the exact method"),
        ("layer_partition_lattice", equal_stages(18, 20, 4), "choices of stages"),
        ("layer_partition_lattice", equal_stages(12, 60, 1), "runs of layers"),
        ("provisioning_allocations", many_offers(), "numbers of stages of each offer"),
    ],
)
def test_what_is_beyond_number_is_refused(name: str, data: Any, expected: str) -> None:
    problem = registry.entry("formulations", name).problem
    with pytest.raises(Unsupported, match=expected):
        statements.solve(problem, data, name, "cpsat")
