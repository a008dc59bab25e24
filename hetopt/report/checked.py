"""A judgement as a sheet: of a plan, of a current run, of what a document claims."""

from ..api.checking import Checked
from ..problems import Evaluation
from ..result import Status
from . import changes, results, runs
from .sheet import Section, Sheet


def claim(found: Checked) -> str:
    """Return what a document claims: a bound, or that there is no plan."""
    none = found.plan is None and found.claim.get("status") == Status.INFEASIBLE.value
    return "that there is no plan" if none else "the bound"


def sheet(found: Checked) -> Sheet:
    """Return what was judged, or read where there is nothing to judge."""
    run, proof = found.run, found.proof
    read = [] if run is None else changes.read(run.asked, run.settings)
    verified = ""
    if proof is not None and not proof.missing:
        verified = f"{claim(found)} is verified: {proof.by} ({proof.proof})"
    if found.evaluation is not None:
        return _judged(found, found.evaluation, read, verified)
    reasons = tuple(str(reason) for reason in found.claim.get("reasons") or ())
    sections = (Section(points=reasons),)
    return Sheet(found.place, sections, facts=tuple(read), answer=verified)


def _judged(
    found: Checked, judged: Evaluation, facts: list[tuple[str, str]], verified: str
) -> Sheet:
    run, measured, told = found.run, found.measured, ""
    assert found.plan is not None
    sections = [*results.judged(found.data, found.plan, judged)]
    if run is not None:
        said = judged, found.bound, run.advice, measured, run.full_length
        told = changes.answer(*said)
    elif measured is not None:
        told = changes.measurement(measured, judged)
    facts += results.totals(judged.parts)
    facts += [] if found.training is None else runs.facts(found.training)
    facts += [] if measured is None else changes.rates(measured)
    sections += [Section(points=(verified,))] if verified else []
    if run is not None and run.advice is not None:
        sections += changes.advice(run.advice)
    return Sheet(found.place, tuple(sections), facts=tuple(facts), answer=told)
