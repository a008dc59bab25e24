"""The module says whether a model fits: the answer, then a row for each set of GPUs."""

from ..api.fitting import Fitting, Verdict
from ..result import Status
from . import words
from .sheet import Section, Sheet, Table

_COLUMNS = ("hardware", "fits", "headroom per GPU", "at most", "too few")


def answer(found: Fitting) -> str:
    """The answer in one sentence, or in one for each set of GPUs."""
    told = [_sentence(found.model, one) for one in found.verdicts]
    told = told or [f"It is open whether {found.model} fits."]
    return " ".join(told) + words.unfinished(found.open, complete=found.complete)


def _sentence(model: str, one: Verdict) -> str:
    left, below = one.margin.value, one.margin.refuted
    if one.fits:
        assert left is not None
        share = f" ({left / one.room_mib:.0%})" if one.room_mib else ""
        said = (
            f"{model} fits on {one.on}, with at least {words.memory(left)}{share} free "
            "on every GPU in use"
        )
        if one.host_mib is not None:
            said += f", if its host has {words.memory(one.host_mib)} for offloading"
        if one.is_tight:
            chance = f"{one.oom_probability:.0%}"
            said += f"; it is tight: {chance} of such runs run out of memory"
        if one.too_few is not None:
            said += f"; {_too_few(one.too_few)}"
        said += "."
    elif one.status is Status.INFEASIBLE:
        said = f"{model} does not fit on {one.on} (proved)"
        if below is not None and below < 0:
            said += f": every GPU needs at least {words.memory(-below)} more"
        said += "."
    else:
        said = (
            f"Undecided on {one.on}: no plan of {model} was found, and no proof that "
            "there is none"
        )
        if left is not None:
            said += f"; it would fit with {words.memory(-left)} more per GPU"
        if one.too_few is not None:
            said += f"; {_too_few(one.too_few)}"
        said += "; a longer --time-limit searches further."
    return said


def _too_few(gpus: int) -> str:
    return f"{gpus} are too few (proved)" if gpus > 1 else "one is too few (proved)"


def _table(found: Fitting) -> Table:
    rows = []
    for one in found.verdicts:
        fits = "yes" if one.fits else "no, proved"
        if not one.fits and one.status is not Status.INFEASIBLE:
            fits = "not known"
        few = words.NONE if one.too_few is None else words.counted(one.too_few, "GPU")
        margins = map(words.memory, (one.margin.value, one.margin.refuted))
        rows.append((one.on, fits, *margins, few))
    return Table.of(_COLUMNS, rows, texts=_COLUMNS[:2])


def sheet(found: Fitting) -> Sheet:
    """Return the answer, and the margin of each set of GPUs."""
    sections = (Section("Margins", table=_table(found)),) if found.verdicts else ()
    title = f"{found.model}, {found.batch:,} × {found.sequence:,} tokens"
    return Sheet(title, sections, "does it fit", answer=answer(found))
