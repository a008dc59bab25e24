"""The module says whether a model fits: the answer, then a row for each set of GPUs."""

from ..api.fitting import Fitting, Verdict
from ..result import Status
from ..scheduling.fitting import LOOKED_AT
from . import words
from .sheet import Section, Sheet, Table

_COLUMNS = ("hardware", "fits", "headroom per GPU", "at most", "too few")
_CONTEXT = ("longest context", "does not fit")
_MARP = (
    *("GPU", "GPUs", "d", "t", "MARP", "fits", "cost model", "fits", "weights"),
    *("gradients", "optimiser", "activations", "logits", "step", "samples/s", "a GPU"),
    "of peak",
)


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
        said += "; a longer --time-limit searches further." if one.complete else "."
    return said + _context(one)


def _too_few(gpus: int) -> str:
    return f"{gpus} are too few (proved)" if gpus > 1 else "one is too few (proved)"


def _context(one: Verdict) -> str:
    if one.context is None:
        return ""
    value, refuted = one.context.value, one.context.refuted
    if value is None:
        return " No context length that fits was found."
    said = f" The longest context that fits is {value:,} tokens"
    if refuted is not None:
        said += f"; {refuted:,} do not fit (proved)"
    return said + "."


def _table(found: Fitting) -> Table:
    asked = any(one.context is not None for one in found.verdicts)
    rows = []
    for one in found.verdicts:
        fits = "yes" if one.fits else "no, proved"
        if not one.fits and one.status is not Status.INFEASIBLE:
            fits = "not known"
        row = [one.on, fits, words.memory(one.margin.value)]
        row.append(words.memory(one.margin.refuted))
        few = one.too_few
        row.append(words.NONE if few is None else f"{few} GPU{'s' * (few > 1)}")
        if asked and one.context is not None:
            told = one.context.value, one.context.refuted
            row += [words.NONE if x is None else f"{x:,}" for x in told]
        rows.append(row)
    headings = (*_COLUMNS, *_CONTEXT) if asked else _COLUMNS
    return Table.of(headings, rows, texts=headings[:2])


_SCOPE = (
    "The answer also considers pipelines, ZeRO and recomputation. `hetopt assemble` "
    "makes an instance of this model and your hosts, `hetopt plan` looks for its "
    "fastest plan."
)


def _marp(found: Fitting) -> Table:
    cells = []
    for row in found.marp:
        own = row.cost_model
        parts = (own.weights, own.gradients, own.optimiser, own.activations, own.logits)
        cells.append(
            (
                row.gpu,
                str(row.gpus),
                str(row.data_parallel),
                str(row.tensor_parallel),
                _gib(row.marp.total),
                "yes" if row.marp_fits else "no",
                _gib(own.total),
                "yes" if row.cost_model_fits else "no",
                *map(_gib, parts),
                words.duration(row.step_us / 1e6),
                words.number(row.samples_per_second),
                words.number(row.samples_per_second / row.gpus),
                words.share(row.utilisation),
            )
        )
    return Table.of(_MARP, cells)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def sheet(found: Fitting) -> Sheet:
    """Return the answer, the margin of each set of GPUs, and MARP's rows."""
    sections = []
    if found.verdicts:
        sections.append(Section("Margins", table=_table(found)))
    if found.marp:
        alone = "Only data and tensor parallelism"
        sections.append(Section(alone, (f"{LOOKED_AT}.",), table=_marp(found)))
    elif found.least_gpus:
        sections.append(Section(notes=(f"Nothing fits with only {LOOKED_AT}.",)))
    if found.least_gpus:
        sections.append(Section(notes=(_SCOPE,)))
    title = f"{found.model}, {found.batch:,} × {found.sequence:,} tokens"
    return Sheet(title, tuple(sections), "does it fit", answer=answer(found))
