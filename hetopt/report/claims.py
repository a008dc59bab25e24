"""The module says whether a claim can be true: a sentence, and its figures."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from ..api.claims import Claim, Truth
from ..result import Status
from . import figures, words, writers
from .sheet import Cell, Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

#: From so many times the peak on it is told as times, not as a percentage.
_TIMES = 10
_WHOLE = 10  # tokens/s from which on no decimals are told


def terminal(found: Claim) -> Iterator[RenderableType]:
    """The verdict in a sentence, then the figures."""
    yield words.plain(answer(found))
    yield ""
    yield writers.facts(_facts(found))


def answer(found: Claim) -> str:
    """The verdict in one sentence."""
    said = f"{found.text} on {found.instance}"
    most = f"{found.most_tokens_per_second:,.0f} tokens/s"
    speed = found.claimed_tokens_per_second
    asked = f"{speed:,.0f}" if speed >= _WHOLE else words.number(speed)
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
    own = said.startswith((asked, plain))
    if found.truth is Truth.POSSIBLE:
        told = asked if own else f"{asked} ({found.text})"
        return f"Possible: a plan reaches {best}; the claim is {told}."
    known = "no plan is known"
    if found.tokens_per_second is not None:
        known = f"the fastest plan known reaches {best}"
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


def page(found: Claim) -> str:
    """The verdict, the claim beside what is known, and the figures."""
    drawn = Figure(
        "Speeds",
        "The claim beside the fastest plan known and what no plan can pass.",
        lambda: picture(found),
        lambda: picture(found, figures.NARROW),
        "One bar per speed; the table has the numbers.",
    )
    sections = (
        Section(notes=(answer(found),), figures=(drawn,)),
        Section("Figures", table=_table(found)),
    )
    title, kind = f"{found.text} on {found.instance}", "can the claim be true"
    return writers.page(Sheet(title, sections, kind, tuple(_facts(found))))


def picture(found: Claim, width: float = figures.WIDTH) -> "Drawing":
    """A bar for each speed, the claim's first."""
    speeds = _speeds(found)
    figure = figures.canvas(width, 0.7 + 0.35 * len(speeds))
    axes = figure.subplots()
    told = [f"{speed:,.0f}" for speed in speeds.values()]
    figures.bars(axes, [*speeds], [*speeds.values()], told)
    axes.set_xlabel("tokens/s")
    return figure


def _table(found: Claim) -> Table:
    tokens = found.claimed_tokens_per_second * float(found.claimed_us)
    rows = [
        (
            name,
            Cell.of(speed, f"{speed:,.0f}"),
            Cell.of(tokens / speed, words.amount(tokens / speed, "us")),
        )
        for name, speed in _speeds(found).items()
    ]
    return Table.of(("speed", "tokens/s", "per iteration"), rows)


def _speeds(found: Claim) -> dict[str, float]:
    """Return tokens/s of the claim, of the fastest plan, and what limits there are."""
    speeds = {"the claim": found.claimed_tokens_per_second}
    if found.tokens_per_second is not None:
        speeds["fastest plan known"] = found.tokens_per_second
    if found.bound.value:
        speeds["no plan is faster"] = found.most_tokens_per_second
    if found.mfu:
        speeds["peak of all GPUs"] = found.claimed_tokens_per_second / found.mfu
    return speeds


FILES = writers.Files[Claim](
    {
        ".html": page,
        ".json": lambda found: writers.document(found.to_json()),
        **dict.fromkeys(writers.PICTURES, picture),
    }
)
