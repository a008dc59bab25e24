"""What every back end must do alike: the conformance tests of `hetopt.modelling`."""

import os
import signal
import sys
import threading
from itertools import permutations
from typing import Any

import pytest
from command_line import ran
from knapsacks import knapsack, quiet

from hetopt import registry
from hetopt.errors import SolverFailed, Unsupported
from hetopt.modelling import Answer, Limits
from hetopt.result import Status, Stop

FAST = Limits(time_s=30)


def fresh(backend: str) -> Any:
    return registry.entry("backends", backend).backend("test")


def test_a_back_end_names_its_version(backend: str) -> None:
    assert registry.entry("backends", backend).version()[0].isdigit()


def test_binaries_and_integers_reach_the_optimum(backend: str) -> None:
    model = fresh(backend)
    x, y = model.integer("x", -3, 10), model.binary("y")
    model.add("room", 0, 2 * x + 3 * y <= 12)
    model.maximise(x + 4 * y)
    answer = model.solve(FAST, quiet)
    assert (answer.status, answer.stop) == (Status.OPTIMAL, Stop.PROVED)
    assert (answer.value(x), answer.value(y)) == (4, 1)
    assert round(answer.value(x + 4 * y)) == 8
    assert answer.objective == pytest.approx(8)
    assert answer.bound == pytest.approx(8)


def test_minimising_reports_a_bound_from_below(backend: str) -> None:
    model = fresh(backend)
    x = model.integer("x", -20, 20)
    model.add("floor", 0, 3 * x >= -40)
    model.minimise(2 * x)
    answer = model.solve(FAST, quiet)
    assert answer.value(x) == -13
    assert answer.bound == pytest.approx(-26)


def test_variables_are_found_by_their_names(backend: str) -> None:
    model = fresh(backend)
    made = {
        "x[1,11]": model.binary("x[1,11]"),
        "x[11,1]": model.binary("x[11,1]"),
        "x_1": model.binary("x_1"),
        "x[1]": model.binary("x[1]"),
    }
    assert all(model.variables[name] is made[name] for name in made)
    for n, variable in enumerate(made.values()):
        model.add("fixed", n, variable == n % 2)
    model.minimise(model.total(made.values()))
    answer = model.solve(FAST, quiet)
    assert [answer.value(variable) for variable in made.values()] == [0, 1, 0, 1]


def test_continuous_variables_are_carried_or_refused_by_name(backend: str) -> None:
    model = fresh(backend)
    if backend == "cpsat":
        with pytest.raises(Unsupported, match="no continuous variable"):
            model.real("share", 0, 1)
        return
    share = model.real("share", 0, 10)
    model.add("half", 0, 2 * share <= 3)
    model.maximise(share)
    assert model.solve(FAST, quiet).value(share) == pytest.approx(1.5)


def test_integers_without_solution_are_infeasible(backend: str) -> None:
    model = fresh(backend)
    x = model.integer("x", 0, 10)
    model.add("odd", 0, 2 * x == 5)
    model.minimise(x)
    answer = model.solve(FAST, quiet)
    assert (answer.status, answer.stop) == (Status.INFEASIBLE, Stop.PROVED)
    assert (answer.objective, answer.bound, answer.value) == (None, None, None)


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("is_sum", [True, False])
def test_a_constraint_without_variables_holds_or_not(
    backend: str, least: int, is_sum: bool
) -> None:
    model = fresh(backend)
    x = model.integer("x", 2, 10)
    model.add("plain", 0, (model.total([]) if is_sum else 0) >= least)
    model.minimise(x)
    expected = Status.INFEASIBLE if least else Status.OPTIMAL
    assert model.solve(FAST, quiet).status is expected


@pytest.mark.parametrize("backend_with_reals", ["scip", "pulp"])
def test_an_unbounded_statement_is_a_clear_failure(backend_with_reals: str) -> None:
    model = fresh(backend_with_reals)
    x = model.real("x", 0, 1e30)
    model.maximise(x)
    with pytest.raises(SolverFailed, match="bound every variable"):
        model.solve(FAST, quiet)


def test_a_hint_does_not_change_the_optimum(backend: str) -> None:
    values = []
    for hinted in (None, 0, 1):
        model = fresh(backend)
        take = knapsack(model, seed=5, items=12, rows=2)
        for variable in take if hinted is not None else []:
            model.hint(variable, hinted)  # all 1 breaks a row
        answer = model.solve(FAST, quiet)
        assert answer.status is Status.OPTIMAL
        values.append(round(answer.objective))
    assert len(set(values)) == 1


def test_the_same_seed_gives_the_same_plan(backend: str) -> None:
    plans = []
    for _ in range(2):
        model = fresh(backend)
        take = knapsack(model, seed=7, items=25, rows=3)
        answer = model.solve(Limits(seed=11), quiet)
        plans.append([answer.value(variable) for variable in take])
    assert plans[0] == plans[1]


def check_unproved(answer: Answer, best_known: float | None = None) -> None:
    """A plan without proof, and a bound, if any, above it (maximising)."""
    assert answer.status is Status.FEASIBLE
    assert answer.objective is not None
    assert answer.value is not None
    if answer.bound is not None:
        assert answer.bound >= answer.objective - 1e-6


def test_at_the_time_limit_nothing_is_proved(backend: str) -> None:
    """What is found by then is a machine's affair; an interrupt keeps it, see below."""
    model = fresh(backend)
    take = knapsack(model, seed=1, items=300, rows=60)
    answer = model.solve(Limits(time_s=0.5), quiet)
    assert answer.stop is Stop.TIME
    if answer.objective is None:
        assert answer.status is Status.UNDECIDED
        return
    check_unproved(answer)
    assert {answer.value(variable) for variable in take} <= {0, 1}


def test_a_gap_target_ends_the_search_without_claiming_the_optimum(
    backend: str,
) -> None:
    model = fresh(backend)
    knapsack(model, seed=1, items=300, rows=60)
    answer = model.solve(Limits(gap=0.2, time_s=30), quiet)
    assert answer.stop is Stop.GAP
    check_unproved(answer)
    if answer.bound is not None:
        assert answer.bound - answer.objective <= 0.2 * answer.bound


def test_progress_never_crosses_the_optimum(backend: str) -> None:
    seen: list[tuple[float | None, float | None]] = []
    model = fresh(backend)
    knapsack(model, seed=3, items=30, rows=5)
    answer = model.solve(FAST, lambda *now: seen.append(now))
    assert answer.status is Status.OPTIMAL
    assert seen or backend == "pulp"  # CBC tells nothing
    for incumbent, bound in seen:
        assert incumbent is None or incumbent <= answer.objective + 1e-6
        assert bound is None or bound >= answer.objective - 1e-6


@pytest.mark.parametrize("talkative", ["scip", "cpsat"])
def test_an_error_in_the_report_ends_the_solve_and_is_raised(talkative: str) -> None:
    def broken(incumbent: float | None, bound: float | None) -> None:
        raise OSError("the terminal is gone")

    model = fresh(talkative)
    knapsack(model, seed=1, items=300, rows=60)
    with pytest.raises(OSError, match="the terminal is gone"):
        model.solve(FAST, broken)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_gives_back_the_incumbent(backend: str, number: int) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    old = signal.signal(number, interrupt)
    wait_s = 1.0 if backend == "pulp" else 0.1  # CBC tells of no incumbent
    timer = threading.Timer(wait_s, os.kill, (os.getpid(), number))
    started = iter([timer])

    def report(incumbent: float | None, bound: float | None) -> None:
        if incumbent is not None:
            for waiting in started:
                waiting.start()

    model = fresh(backend)
    knapsack(model, seed=1, items=300, rows=60)
    try:
        if backend == "pulp":
            report(0.0, None)
        answer = model.solve(Limits(time_s=60), report)
    finally:
        timer.cancel()
        signal.signal(number, old)
    assert answer.stop is Stop.INTERRUPTED
    check_unproved(answer)


def test_a_memory_limit_is_carried_or_refused_by_name(backend: str) -> None:
    model = fresh(backend)
    knapsack(model, seed=2, items=10, rows=1)
    if backend == "pulp":
        with pytest.raises(Unsupported, match="no memory limit"):
            model.solve(Limits(memory_mib=2000), quiet)
        return
    assert model.solve(Limits(memory_mib=2000), quiet).status is Status.OPTIMAL


def test_scip_stops_at_a_memory_limit_that_is_too_small() -> None:
    model = fresh("scip")
    knapsack(model, seed=1, items=300, rows=60)
    answer = model.solve(Limits(memory_mib=1, time_s=30), quiet)
    assert answer.stop is Stop.MEMORY


def test_cpsat_bounds_are_whole_numbers_of_exact_arithmetic() -> None:
    model = fresh("cpsat")
    x = model.integer("x", 0, 2**52)
    model.maximise(x)
    answer = model.solve(FAST, quiet)
    assert isinstance(answer.bound, int)
    assert answer.bound == answer.objective == 2**52


def orders() -> list[Any]:
    """All orders of back ends; of any two, each is first in one that is not slow."""
    every = list(permutations(registry.names("backends")))
    usual = (every[0], every[0][::-1])
    slow = pytest.mark.slow
    return [pytest.param(o, marks=[] if o in usual else slow) for o in every]


@pytest.mark.parametrize("order", orders(), ids="-".join)
def test_all_back_ends_load_in_one_process_in_every_order(
    order: tuple[str, ...],
) -> None:
    code = (
        "import sys; from hetopt import registry\n"
        "from hetopt.modelling import Limits\n"
        "for name in sys.argv[1:]:\n"
        "    model = registry.entry('backends', name).backend('order')\n"
        "    x = model.integer('x', 0, 9); model.add('half', 0, 2 * x <= 9)\n"
        "    model.maximise(x)\n"
        "    answer = model.solve(Limits(), lambda *_: None)\n"
        "    sys.exit(name) if answer.value(x) != 4 else None\n"
    )
    done = ran(sys.executable, "-c", code, *order)
    assert done.returncode == 0, (order, done.stderr)


@pytest.mark.parametrize("exit_code", [-11, 0], ids=["a crash", "infeasible"])
def test_what_cbc_says_of_a_proof_when_its_time_is_up_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, exit_code: int
) -> None:
    from hetopt.backends.pulp import cbc

    run = cbc._wait
    monkeypatch.setattr(cbc, "_wait", lambda command: (run(command)[0], exit_code))
    monkeypatch.setattr(cbc, "near", lambda limit_s, seconds: limit_s is not None)
    model = fresh("pulp")
    x = model.integer("x", 0, 1)
    model.add("never", 0, x >= 2)
    model.minimise(x)
    answer = model.solve(Limits(time_s=60), quiet)
    assert (answer.status, answer.stop) == (Status.UNDECIDED, Stop.TIME)
    if exit_code:
        with pytest.raises(SolverFailed, match="exit code -11"):
            model.solve(Limits(), quiet)
    else:
        assert model.solve(Limits(), quiet).status is Status.INFEASIBLE
