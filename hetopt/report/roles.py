"""The module says what the slow cards do best, and what the other ways take."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..api.slow_cards import Role, Roles, Way
from ..result import Status
from . import words, writers
from .sheet import Table

_AS = {
    Way.STAGES: "as stages of the fast cards' pipelines",
    Way.REPLICAS: "as replicas beside the fast cards in one stage",
    Way.PIPELINES: "as pipelines of their own",
    Way.IDLE: "idle",
}
_COLUMNS = (
    *("card", "used", "takes part", "TP", "place in the pipeline"),
    *("layers per stage", "recompute", "of the batch"),
)
_WAYS = ("slow cards", "per iteration", "against the best")


def terminal(found: Roles) -> Iterator[RenderableType]:
    """The answer in a sentence, then what each card does, then the ways."""
    yield words.plain(answer(found))
    if not found.options:
        return
    yield ""
    rows = [_row(row) for row in found.rows]
    texts = ("card", "takes part", "place in the pipeline", "recompute")
    yield writers.terminal(Table.of(_COLUMNS, rows, texts=texts))
    yield ""
    yield writers.terminal(_ways(found))
    if found.bound is not None:
        least = words.amount(found.bound.value, "us")
        yield Text(f"no plan is faster than {least} ({found.bound.source})")
    yield Text(
        "The alternatives are the best plans found; only the bound is proved.",
        style="dim",
    )


def answer(found: Roles) -> str:
    """Return what the slow cards do best, and what the other ways take."""
    if not found.options and found.result.status is Status.INFEASIBLE:
        return f"No plan fits on {found.instance} (proved)."
    if not found.options:
        said = f"{found.instance}: no plan was found in time"
        if found.bound is not None:
            least = words.amount(found.bound.value, "us")
            said += f", and none is faster than {least} (proved)"
        said += "; a longer --time-limit looks further."
        return said + words.unfinished((), complete=found.complete)
    best, *others = found.options
    slow = next(row for row in found.rows if row.gpu == found.slow)
    said = f"The slow cards ({slow.gpus} × {slow.gpu}) do best {_AS[best.way]}"
    if best.way is not Way.IDLE:
        said += f", {_what(slow)}"
    said += f": {words.amount(best.iteration_us, 'us')} per iteration"
    told = [f"{_AS[one.way]} {words.amount(one.iteration_us, 'us')}" for one in others]
    whole = f"{said}; {'; '.join(told)}." if told else f"{said}."
    return whole + words.unfinished((), complete=found.complete)


def _what(row: Role) -> str:
    """Degree, place and layers of the cards."""
    parts = [_degrees(row)]
    if row.way is Way.PIPELINES:
        parts.append(f"{row.batch:.0%} of the batch")
    else:
        parts.append(f"{' and '.join(row.positions)} in the pipeline")
        if row.layers is not None:
            parts.append(f"{_each(row.layers)} each")
    return ", ".join(parts)


def _degrees(row: Role) -> str:
    return f"TP {'/'.join(map(str, row.degrees))}"


def _span(layers: tuple[int, int]) -> str:
    low, high = layers
    return str(low) if low == high else f"{low} to {high}"


def _each(layers: tuple[int, int]) -> str:
    return f"{_span(layers)} layer{'s' * (layers != (1, 1))}"


def _row(row: Role) -> tuple[str, ...]:
    idle = row.way is Way.IDLE
    return (
        row.gpu,
        f"{row.used} of {row.gpus}",
        _AS[row.way] if row.way is Way.IDLE else _short(row.way),
        words.NONE if idle else "/".join(map(str, row.degrees)),
        words.NONE if idle else ", ".join(row.positions),
        words.NONE if row.layers is None else _span(row.layers),
        words.NONE if idle else ", ".join(row.recompute),
        words.NONE if idle else f"{row.batch:.0%}",
    )


def _short(way: Way) -> str:
    return {
        Way.STAGES: "stages of mixed pipelines",
        Way.REPLICAS: "replicas in mixed stages",
        Way.PIPELINES: "pipelines of one card",
        Way.IDLE: "idle",
    }[way]


def _ways(found: Roles) -> Table:
    best = found.options[0].iteration_us
    rows = [
        (
            _AS[one.way],
            words.amount(one.iteration_us, "us"),
            words.share(one.iteration_us / best - 1, signed=True),
        )
        for one in found.options
    ]
    return Table.of(_WAYS, rows, texts=_WAYS[:1])
