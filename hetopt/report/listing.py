"""What `hetopt list` shows: on a terminal, and as pages of the documentation."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..api.exchange import Assembled
from ..api.solvers import Diagnosis
from ..capability.settings import SETTINGS
from ..findings import Entries
from ..formats.importing import Imported
from ..measuring.profiling import Profiled, shown
from ..runtime.handover import SavedStates
from ..schema.targets import Feature
from ..text import markdown
from ..text.documents import Document, Fields, own_data
from ..text.numbers import counted
from . import words
from .sheet import Section, Sheet, Table
from .targets import able

_HEADS: Mapping[str, str] = own_data(__file__)
#: A row's columns by kind; those of numbers are to the right.
_COLUMNS: dict[str, Callable[[Document], Document]] = {
    "gpus": lambda row: {
        "card": row["name"],
        "GiB": row["memory_gib"],
        "GB/s": row["memory_gbytes_per_s"],
        "TFLOP/s": row["tflops"].get("fp16", row["tflops"].get("bf16")),
        "fp8": row["tflops"].get("fp8"),
        "fp4": row["tflops"].get("fp4"),
        "W": row["watts"],
        "link GB/s": row["link_gbytes_per_s"],
        "machine": row["machine"],
    },
    "machines": lambda row: {
        "machine": row["name"],
        "GPUs": row["gpus"],
        "joined": row["domain"],
        "adapters": row["adapters"],
        "GB/s each": row["adapter_gbytes_per_s"],
        "cards": ", ".join(row["cards"]),
        "source": row["description"],
    },
    "fields": lambda row: {
        "field": row["name"],
        "unit": row["unit"] or "",
        "expects": row["expects"],
        "default": _field_default(row),
        "what it says": row["description"],
    },
    "capabilities": lambda row: {
        "kind": row["kind"],
        "name": row["name"],
        "refuses": ", ".join(_carried(row, "not")),
        "carries in part": ", ".join(_carried(row, "in part")),
    },
    "formats": lambda row: {
        "name": row["name"],
        "direction": row["direction"],
        "what it is": row["description"],
    },
}


def entries(found: Entries) -> Sheet:
    """Return a table with a line for each entry; dashes where nothing is known."""
    if found.kind == "runners":
        return able(found)
    shown = [_COLUMNS.get(found.kind, _named)(row) for row in found.rows]
    headings = tuple(shown[0]) if shown else ()
    texts = [x for x in headings if any(isinstance(row[x], str) for row in shown)]
    cells = [
        [
            x if isinstance(x, str) else words.NONE if x is None else f"{x:.6g}"
            for x in row.values()
        ]
        for row in shown
    ]
    table = Table.of(headings, cells, texts=texts)
    return Sheet(found.kind, (Section(table=table),))


def _named(row: Document) -> Document:
    """A name, what it stands for, and the options of a planner or a method."""
    own, told = row.get("options"), row["description"]
    if own and isinstance(own, str):
        told += f" ({own})"
    return {"name": row["name"], "what it is": told}


def assumed(found: Imported | Assembled) -> Sheet:
    """Return what was taken for granted in a document, and what changes it."""
    headings = ("assumed", "value", "source", "change it with")
    cells = ((row.what, row.value, row.source, row.change) for row in found.assumed)
    table = Table.of(headings, cells, texts=headings)
    return Sheet("Assumed", (Section(table=table),) if found.assumed else ())


def diagnosis(found: Diagnosis) -> Sheet:
    """Return what is installed, and how each solver fared."""
    headings = ("back end", "version", "verdict")
    rows = (
        (
            one.name,
            one.version or "",
            f"works, {one.seconds} s" if one.healthy else str(one.reason),
        )
        for one in found.backends
    )
    machine = f"hetopt {found.hetopt}, Python {found.python}, {found.threads} threads"
    table = Table.of(headings, rows, texts=headings)
    return Sheet("Solvers", (Section(table=table),), answer=machine)


def states(found: SavedStates) -> Sheet:
    """Return what states a run has saved, and what they lack."""
    size = f"{found.bytes / 2**30:.3f} GiB in {counted(found.files, 'file')}"
    told = f"step {found.step}: {found.parameters:,} parameters, {size}"
    if lacks := found.incomplete:
        told += f"; not whole: {', '.join(lacks)}"
    return Sheet("States", answer=told)


def profile(found: Profiled) -> Sheet:
    """Return what was measured of a layer."""
    headings = ("TP", "micro-batch", "forward ms", "backward ms", "kept MiB", "peak")
    table = Table.of(headings, shown(found), texts=())
    told = f"one layer on {found.gpu}, PyTorch {found.torch}"
    return Sheet("Profile", (Section(table=table),), answer=told)


def page(kind: str, rows: Iterable[Document]) -> str:
    """Return the page REFERENCE.md of fields, commands or capabilities."""
    pages = {"fields": _fields, "commands": _commands, "capabilities": _capabilities}
    return "\n".join(pages[kind](list(rows))).rstrip("\n") + "\n"


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = tuple(headings)
    yield from map(markdown.line, (heads, ["---"] * len(heads), *rows))
    yield ""


# --- fields ----------------------------------------------------------------------
_HEADINGS = ("field", "unit", "expects", "default", "what it says", "found where")


def _fields(rows: list[Document]) -> Iterator[str]:
    yield _HEADS["fields"]
    places: dict[str, list[Document]] = {}
    for row in rows:
        places.setdefault(str(row["name"]).rpartition(".")[0], []).append(row)
    for place, fields in places.items():
        yield f"## {f'`{place}`' if place else 'The file'}\n"
        yield from _table(_HEADINGS, map(_field_cells, fields))


def _field_cells(row: Document) -> list[str]:
    texts = [row["unit"], row["expects"], _field_default(row), row["description"]]
    name = str(row["name"]).rpartition(".")[2]
    rest = [markdown.cell(str(text or "")) for text in (*texts, row["source"])]
    return [f"`{name}`", *rest]


def _field_default(row: Document) -> str:
    if row["required"]:
        return "required"
    return "" if row["default"] is None else json.dumps(row["default"])


# --- commands --------------------------------------------------------------------


def _commands(rows: list[Document]) -> Iterator[str]:
    yield _HEADS["commands"]
    for row in rows:
        yield f"## hetopt {row['name']}\n"
        yield f"{_plain(row['description'])}\n"
        arguments = [word for one in row["arguments"] for word in one["words"]]
        usage = " ".join(["hetopt", row["name"], *arguments, "[OPTIONS]"])
        yield f"`{usage}`\n"
        if row["details"]:
            yield f"{_plain(row['details'])}\n"
        params = (*row["arguments"], *row["options"])
        yield from _table(("", "what it says", "default"), map(_param_cells, params))


def _param_cells(one: Document) -> tuple[str, str, str]:
    value = one["value"] if one["words"][0].startswith("-") else None
    written = " ".join(filter(None, (", ".join(one["words"]), value)))
    default = "" if one["default"] is None else f"`{one['default']}`"
    return (
        f"`{markdown.cell(written)}`",
        markdown.cell(_plain(one["description"])),
        "required" if one["required"] else default,
    )


def _plain(text: str) -> str:
    """Text in which what is no code reads the same: no name in angle brackets."""
    return re.sub(r"<(?=\w)", "&lt;", text)


# --- capabilities ----------------------------------------------------------------
_PARTS = {
    "The exact methods, and their proofs": ("exact method", "proof"),
    "Statements, problems, commands": ("statement", "problem", "command"),
    "Planners, and simulated schedules": ("planner", "schedule"),
}
_MARKS = {"exactly": "", "in part": "*part*", "not": "**no**"}


def _capabilities(rows: list[Document]) -> Iterator[str]:
    """Yield methods, then why each carries a setting in part or not; programs."""
    methods = [row for row in rows if row["kind"] != "program"]
    programs = [row for row in rows if row["kind"] == "program"]
    settings = {
        name: f"{one.words}<br>`{one.field.rpartition('.')[2]}`"
        for name, one in SETTINGS.items()
    }
    features = {one.name.lower(): str(one.value) for one in Feature}
    yield _HEADS["methods"]
    for heading, kinds in _PARTS.items():
        yield f"## {heading}\n"
        some = [row for row in methods if row["kind"] in kinds]
        yield from _matrix("setting", settings, some)
    yield "## Why\n"
    for row in methods:
        yield f"**{row['name']}** ({row['description']})\n"
        yield from _reasons(row)
        yield ""
    yield _HEADS["programs"]
    yield from _matrix("feature", features, programs)
    yield from (f"- **{row['name']}**: {row['description']}." for row in programs)


def _matrix(what: str, names: Mapping[str, str], rows: list[Document]) -> Iterator[str]:
    """A table with a column a row, but for settings that all carry."""
    lines = [
        [text, *(_MARKS[row["carries"][name]["carried"]] for row in rows)]
        for name, text in names.items()
    ]
    heads = (what, *(row["name"] for row in rows))
    return _table(heads, (line for line in lines if any(line[1:])))


def _reasons(row: Document) -> Iterator[str]:
    for carried, mark in _MARKS.items():
        found: dict[str, list[str]] = {}
        for name in _carried(row, carried):
            if reason := row["carries"][name]["reason"]:
                found.setdefault(reason, []).append(SETTINGS[name].words)
        for reason, names in found.items():
            yield f"- {mark} {', '.join(names)}: {reason}."


def _carried(row: Fields, carried: str) -> list[str]:
    return [name for name, x in row["carries"].items() if x["carried"] == carried]
