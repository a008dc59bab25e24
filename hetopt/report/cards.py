"""Cards and machines of the catalogue, on a terminal."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType

from ..text.documents import Document
from . import words, writers
from .sheet import Table

Row = Document


def gpus(rows: Iterable[Row]) -> RenderableType:
    """A line a card; dashes where the catalogue does not know."""
    figures = ("GiB", "GB/s", "TFLOP/s", "fp8", "fp4", "W", "link GB/s")
    cells = ((r["name"], *map(_number, _figures(r)), r["machine"]) for r in rows)
    texts = ("card", "machine")
    return writers.grid(Table.of(("card", *figures, "machine"), cells, texts=texts))


def machines(rows: Iterable[Row]) -> RenderableType:
    """A line a machine: GPUs of a node, those joined at full rate, adapters, cards."""
    figures = ("gpus", "domain", "adapters", "adapter_gbytes_per_s")
    cells = (
        (
            row["name"],
            *(_number(row[name]) for name in figures),
            ", ".join(row["cards"]),
            row["description"],
        )
        for row in rows
    )
    texts = ("machine", "cards", "source")
    headings = ("machine", "GPUs", "joined", "adapters", "GB/s each", *texts[1:])
    return writers.grid(Table.of(headings, cells, texts=texts))


def _figures(row: Row) -> Iterator[float | None]:
    rates = row["tflops"]
    yield row["memory_gib"]
    yield row["memory_gbytes_per_s"]
    yield rates.get("fp16", rates.get("bf16"))
    yield rates.get("fp8")
    yield rates.get("fp4")
    yield row["watts"]
    yield row["link_gbytes_per_s"]


def _number(value: float | None) -> str:
    return words.NONE if value is None else f"{value:.6g}"
