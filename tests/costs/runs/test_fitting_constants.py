"""Constants from runs: what these tell is found again, all else stays as it was."""

from random import Random

import numpy as np
import pytest
from synthetic_runs import measured, row

from hetopt.costs.constants import Constant, Table, plain, shipped
from hetopt.costs.runs.fitting import fit, predicted_s
from hetopt.costs.runs.prediction import (
    fitted_on,
    observed_runs,
    predictions,
    summaries,
)
from hetopt.costs.runs.rows import Run

PRIORS = shipped.priors()
TRUTH = plain(PRIORS) | {"product.bf16": 0.6, "tp": 1.4, "traffic": 2.0}


def runs(count: int = 60, seed: int = 1) -> list[Run]:
    random = Random(seed)
    return measured([row(random) for _ in range(count)], TRUTH)


def test_what_runs_tell_is_found_again() -> None:
    seen = observed_runs(runs(), noise=0.01)
    fitted = fit(seen, PRIORS)
    off = np.abs(fitted.predicted - fitted.measured)
    assert off.max() < 0.03
    found = fitted.constants
    for name in ("product.bf16", "tp"):
        before = abs(np.log(PRIORS[name].value / TRUTH[name]))
        assert abs(np.log(found[name].value / TRUTH[name])) < before / 2
        assert found[name].spread < PRIORS[name].spread


def test_left_out_is_what_a_fit_without_says() -> None:
    """The linear model at the optimum, refitted, against a fit of its own."""
    seen = observed_runs(runs(30), noise=0.05)
    away = list(range(0, 30, 5))
    quick = Table(fit(seen, PRIORS).without(away))
    rest = [one for i, one in enumerate(seen) if i not in away]
    slow = Table(plain(fit(rest, PRIORS).constants))
    for i in away:
        pair = (predicted_s(table, seen[i].described) for table in (quick, slow))
        assert np.ptp(np.log(list(pair))) < 0.02


def test_three_runs_of_a_slow_system_help_with_its_others() -> None:
    random = Random(5)
    rows = [{**row(random), "gpu": "a100_80gb", "framework": "x"} for _ in range(12)]
    slow = plain(shipped.constants()) | {"pace": 1.6}
    mine = measured(rows, slow)
    before = summaries(mine, predictions(mine))["all"]
    after = predictions(mine, fitted_on(mine[:3]))
    rest = summaries(mine[3:], [one._replace(row=i) for i, one in enumerate(after[3:])])
    assert rest["all"].mean_error < before.mean_error / 2


def test_ten_runs_of_one_configuration_say_little_more_than_one() -> None:
    one = runs(1)[0]
    assert one.iteration_s
    slower = one.model_copy(update={"iteration_s": 1.5 * one.iteration_s})

    def pace(times: int) -> Constant:
        return fit(observed_runs([slower] * times), PRIORS).constants["product.bf16"]

    assert pace(9).value == pytest.approx(pace(1).value, rel=0.05)


def test_runs_of_a_system_find_the_constant_that_is_its_own() -> None:
    """Kernels of half the speed are no factor of everything."""
    fields = {**row(Random(3)), "gpu": "h100_80gb", "framework": "torchtitan"}
    one = {**fields, "model": "one", "experts": None, "precision": "bf16", "mbs": 1}
    lengths = (4096, 32768, 8192, 65536)
    rows = [{**one, "seq": seq, "gbs": one["dp"] * 8} for seq in lengths]
    known = plain(shipped.constants())
    mine = measured(rows, known | {"attention.flash2": known["attention.flash2"] / 2})
    found = fitted_on(mine[:2])
    for before, after, run in zip(
        predictions(mine[2:]), predictions(mine[2:], found), mine[2:], strict=True
    ):
        assert run.iteration_s
        assert before.iteration_s
        assert after.iteration_s
        far = abs(np.log(before.iteration_s / run.iteration_s))
        assert abs(np.log(after.iteration_s / run.iteration_s)) < far / 3


def test_runs_leave_no_constant_less_certain_than_it_was() -> None:
    known = shipped.constants()
    found = fitted_on(runs(3))
    assert all(one.spread <= known[n].spread for n, one in found.items() if n in known)
    for name in ("mamba.passes", "product.nvfp4", "lora.passes"):
        assert found[name] == pytest.approx(known[name])
