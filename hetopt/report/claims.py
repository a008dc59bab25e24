"""The module says whether a claim can be true: a sentence, and its figures."""

from collections.abc import Iterator

from rich.console import RenderableType

from ..api.claims import Claim, Truth
from ..result import Status
from . import words, writers

#: From so many times the peak on it is told as times, not as a percentage.
_TIMES = 10


def terminal(found: Claim) -> Iterator[RenderableType]:
    """The verdict in a sentence, then the figures."""
    yield words.plain(answer(found))
    yield ""
    yield writers.facts(_facts(found))


def answer(found: Claim) -> str:
    """The verdict in one sentence."""
    said = f"{found.text} on {found.instance}"
    most = f"{found.most_tokens_per_second:,.0f} tokens/s"
    asked = f"{found.claimed_tokens_per_second:,.0f}"
    plain = asked.replace(",", "")
    if found.truth is Truth.IMPOSSIBLE:
        assert found.mfu is not None
        share = f"{found.mfu:.0%} of"
        if found.mfu >= _TIMES:
            share = f"{found.mfu:,.0f} times"
        return (
            f"Impossible: {said} is {share} the peak of all its GPUs; by the cost "
            f"model no plan reaches more than {most} (proved)."
        )
    if found.result is not None and found.result.status is Status.INFEASIBLE:
        return f"Refuted: no plan fits on {found.instance} at all (proved)."
    if found.truth is Truth.REFUTED:
        over = found.claimed_tokens_per_second / found.most_tokens_per_second - 1
        verdict = (
            f"Refuted: {said} is {over:.1%} above what any plan reaches, {most} "
            "(proved for the cost model"
        )
        if found.beyond_error is None:
            return f"{verdict})."
        if found.beyond_error:
            return f"{verdict}, and beyond its error on published runs)."
        return f"{verdict}, but within its error on published runs)."
    best = f"{found.tokens_per_second or 0:,.0f} tokens/s"
    if found.truth is Truth.POSSIBLE:
        return f"Possible: a plan reaches {best}; the claim is {asked}."
    known = "no plan is known"
    if found.tokens_per_second is not None:
        known = f"the fastest plan known reaches {best}"
    own = said.startswith((asked, plain))
    return (
        f"Not refuted: {said}{'' if own else f', {asked} tokens/s,'} may be possible; "
        f"{known}, and no plan reaches more than {most} (proved)."
    )


def _facts(found: Claim) -> Iterator[tuple[str, str]]:
    yield "claimed", words.amount(float(found.claimed_us), "us") + " per iteration"
    if found.mfu is not None:
        yield "claimed MFU", f"{found.mfu:.1%}"
    bound = words.amount(found.bound.value, "us")
    yield "no plan is faster than", f"{bound} ({found.bound.source})"
    if found.result is not None and found.result.objective is not None:
        yield "fastest plan known", words.amount(found.result.objective, "us")
