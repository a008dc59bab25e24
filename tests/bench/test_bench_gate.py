"""A gate: solves of a run beside the best that is known of the library."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from command_line import document

from hetopt.bench import gate
from hetopt.files import best

NAME = "hexiscale/setting-3-llama-30b"  # its bound is below its plan
ALLOWED = {"plan": 0.01, "bound": 0.02}
SHARES = [Fraction(n, 400) for n in (-4, 0, 3, 12)]


def row(**changes: Any) -> dict[str, Any]:
    """The row of a solve that finds and proves what is known best."""
    known = best.known(NAME)
    return {
        "key": f"{NAME} by exact",
        "instance": NAME,
        "method": "exact",
        "seed": 0,
        "problem": known.problem,
        "digest": known.digest,
        "sense": known.sense,
        "unit": known.unit,
        "status": "feasible",
        "objective": known.objective,
        "bound": known.bound,
        "allowed": ALLOWED,
        "seconds": {"solve": 9.5, "trace": []},
        **changes,
    }


def moved(name: str, share: Fraction) -> float:
    """An objective or bound that is away by that share of the best objective."""
    known = best.known(NAME)
    value, scale = known.value(name), known.value("objective")
    return float(value + share * scale)


@pytest.mark.parametrize("plan", SHARES)
@pytest.mark.parametrize("bound", SHARES)
def test_losses_are_told_and_judged_by_what_is_allowed(
    plan: Fraction, bound: Fraction
) -> None:
    """Below 0 is better than what is known best, which passes."""
    changes = {"objective": moved("objective", plan), "bound": moved("bound", -bound)}
    (verdict,) = gate.verdicts([row(**changes)])
    assert verdict.plan_loss == pytest.approx(float(plan), abs=1e-6)
    assert verdict.bound_loss == pytest.approx(float(bound), abs=1e-6)
    assert verdict.seconds == pytest.approx(9.5)
    lost = {"plan": plan, "bound": bound}
    assert [why.split(",")[0] for why in verdict.why] == [
        f"the {what} loses {float(share):.2%}"
        for what, share in lost.items()
        if share > ALLOWED[what]
    ]


def test_a_solve_without_a_plan_or_a_bound_is_worse() -> None:
    (verdict,) = gate.verdicts([row(objective=None, bound=None, status="timeout")])
    assert verdict.why == ("no plan: timeout", "no bound: timeout")
    (strange,) = gate.verdicts([row(digest="sha256:other")])
    assert strange.why == ("the best known is of other data",)


def test_rows_that_are_no_gate_have_no_verdict() -> None:
    plain = row()
    del plain["allowed"]
    assert gate.verdicts([plain]) == []


@pytest.mark.parametrize(("share", "code"), [(Fraction(0), 0), (Fraction(1, 20), 1)])
def test_the_command_ends_by_the_verdict(
    share: Fraction, code: int, tmp_path: Path
) -> None:
    lines = [{"suite": "gate"}, row(objective=moved("objective", share))]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (verdict,) = document("bench", "--report", tmp_path, code=code)["gate"]
    assert bool(verdict["why"]) == bool(code)
    page = (tmp_path / "gate.md").read_text("utf-8")
    assert "| 5.00% |" in page if code else "| 0.00% |" in page
