"""Rows of runs written as a user would, by the standard library alone."""

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

WHOLE = ("layers", "hidden", "heads", "seq", "gpus", "dp", "tp", "pp", "mbs", "gbs")
REAL = ("iteration_s", "tokens_per_s_gpu", "peak_gib", "peak_reserved_mib")
TRUTH = ("gated", "oom")
TEXT = ("model", "gpu", "precision", "notes")


def as_csv(rows: Iterable[dict[str, Any]], *more: str) -> str:
    """CSV of rows; `more` are columns that nobody knows."""
    rows = list(rows)
    columns = [*dict.fromkeys(name for row in rows for name in row), *more]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool() | list():
            return json.dumps(value)
    return str(value)


def rows() -> SearchStrategy[list[dict[str, Any]]]:
    """Some rows, each with some of the fields of a run."""
    whole = st.integers(1, 10**6)
    real = st.just(0.0) | st.floats(1e-12, 1e9)
    letters = st.characters(exclude_categories=("Cc", "Cs"))
    text = st.text(letters, min_size=1, max_size=12).filter(str.strip)
    fields = (
        {name: whole for name in WHOLE}
        | {name: real for name in REAL}
        | {name: st.booleans() for name in TRUTH}
        | {name: text for name in TEXT}
        | {"stage_layers": st.lists(st.integers(0, 99), max_size=4)}
        | {"fsdp": st.integers(0, 64) | st.sampled_from(["HSDP", "FSDP2"])}
        | {"zero": st.integers(0, 3)}
    )
    row = st.fixed_dictionaries(
        {"layers": whole, "gpus": whole},
        optional={
            name: st.none() | one
            for name, one in fields.items()
            if name not in ("layers", "gpus")
        },
    )
    return st.lists(row, min_size=1, max_size=5)
