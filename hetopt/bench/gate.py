"""A gate: how far the solves of a run are from the best that is known.

A group of a suite is a gate by its `allowed`: what plan and bound of each solve may
lose on `<name>.best.json`, relative to the best known objective. Seconds are told
beside it, and decide nothing: machines differ.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from pydantic import Field

from ..files.best import known, number
from ..schema import Record
from ..text import markdown
from ..text.documents import Document
from .journal import Row
from .records import Allowed


class Verdict(Record):
    """A solve beside the best known; losses are shares of the best known objective."""

    instance: str
    method: str
    seconds: float | None = Field(None, description="Of the method.")
    plan_loss: float | None = Field(None, description="Below 0: a better plan.")
    bound_loss: float | None = Field(None, description="Below 0: a stronger bound.")
    allowed: Allowed
    why: tuple[str, ...] = Field((), description="What is worse than allowed.")


def verdicts(rows: Iterable[Row]) -> list[Verdict]:
    """Return a verdict on every row of a gate."""
    return [_verdict(row) for row in rows if "allowed" in row]


def table(found: Iterable[Verdict]) -> str:
    """Return the verdicts as Markdown."""
    heads = ("instance", "method", "seconds", "plan loses", "bound loses", "verdict")
    return "\n".join(
        [
            "# Gate\n",
            "Losses on the best known plan and bound, relative to the best known "
            "objective.\n",
            markdown.line(heads),
            markdown.line(("---", "---", "---:", "---:", "---:", "---")),
            *(markdown.line(_cells(verdict)) for verdict in found),
            "",
        ]
    )


def _cells(verdict: Verdict) -> Iterator[str]:
    yield markdown.escaped(verdict.instance)
    yield markdown.escaped(verdict.method)
    yield "–" if verdict.seconds is None else f"{verdict.seconds:.1f}"
    yield _per_cent(verdict.plan_loss)
    yield _per_cent(verdict.bound_loss)
    yield "; ".join(verdict.why) or "ok"


def _per_cent(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.2%}"


def _verdict(row: Row) -> Verdict:
    allowed = Allowed.model_validate(row["allowed"])
    asked: Document = {"instance": row["instance"], "method": row["method"]}
    asked |= {"allowed": allowed, "seconds": row.get("seconds", {}).get("solve")}
    top = known(row["instance"])
    if top is None:
        return Verdict(**asked, why=("nothing is known best of it",))
    if row.get("digest") not in (None, top.digest):
        return Verdict(**asked, why=("the best known is of other data",))
    scale, sign = top.value("objective"), 1 if top.sense == "minimise" else -1
    assert scale is not None
    plan = _loss(scale, number(row, "objective"), sign, scale)
    bound = _loss(top.value("bound"), number(row, "bound"), -sign, scale)
    why = []
    if plan is None:
        why.append(f"no plan: {row['status']}")
    elif plan > allowed.plan:
        why.append(f"the plan loses {plan:.2%}, allowed {allowed.plan:.2%}")
    if bound is None and top.bound is not None:
        why.append(f"no bound: {row['status']}")
    elif bound is not None and bound > allowed.bound:
        why.append(f"the bound loses {bound:.2%}, allowed {allowed.bound:.2%}")
    return Verdict(**asked, plan_loss=plan, bound_loss=bound, why=tuple(why))


def _loss(
    known: Fraction | None, found: Fraction | None, worse: int, scale: Fraction
) -> float | None:
    """Return how much worse a number is than the best known, as a share of `scale`."""
    if known is None or found is None:
        return None
    return float(worse * (found - known) / (abs(scale) or 1))
