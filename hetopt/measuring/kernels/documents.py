"""Files and tables of a fit: its constants, and how well it holds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...costs.constants import Constant
from ...costs.constants.files import KIND, VERSION
from ...text.documents import Document
from . import fitting, sheets
from .clock import Row
from .fitting import Fitted
from .observing import Observed


def fit(
    rows: Sequence[Row],
    gpu: str | None = None,
    known: Mapping[str, Constant] | None = None,
) -> Fitted:
    """The constants of the card that rows were measured on.

    `gpu` names its data sheet where the device's own name does not. `InstanceError` as
    of `sheets` and of `fitting`.
    """
    name = gpu or device(rows)["name"]
    if name == sheets.CPU:
        machine = sheets.measured_sheet(rows)
        return fitting.fitted(rows, machine, known, has_sheet=False)
    return fitting.fitted(rows, sheets.sheet(name), known)


def device(rows: Iterable[Row]) -> Row:
    """The row that says where the others were measured."""
    return next(row for row in rows if row["what"] == "device")


def document(found: Fitted, rows: Sequence[Row]) -> Document:
    """The file: what `calibration.files` reads, and how well the constants hold."""
    about = {key: value for key, value in device(rows).items() if key != "what"}
    where = f"{about['name']}, PyTorch {about.get('torch', 'unknown')}"
    date = f", {about['date']}" if "date" in about else ""
    counts = Counter(row["what"] for row in rows if row["what"] != "device")
    machine = found.machine
    return {
        "hetopt": KIND,
        "version": VERSION,
        "card": machine.card,
        "measured": {"device": about.pop("name"), **about, "rows": dict(counts)},
        "sheet": {
            "generation": machine.generation,
            "flops": machine.flops,
            "memory_bytes_per_s": machine.memory_bytes_per_s,
        },
        "given": found.given,
        "constants": {
            name: {
                "value": constant.value,
                "spread": constant.spread,
                "runs": found.rows[name],
                "source": f"measured on {where}{date}",
            }
            for name, constant in found.constants.items()
        },
        "fit": {
            kind: {"rows": rows_of, "median_error": far}
            for kind, (rows_of, far) in found.errors.items()
        },
        "terms": [_compared(found, one) for one in found.terms],
        "compared": [_compared(found, one) for one in found.compared],
        "refused": [row for row in rows if row["what"] == "err"],
    }


def _compared(found: Fitted, one: Observed) -> Document:
    return {
        "kind": one.kind,
        "what": one.label,
        "measured_s": one.measured_s,
        "predicted_s": found.predicted_s(one),
        "shipped_s": found.predicted_s(one, fitted=False),
    }


def constants_shown(found: Fitted) -> Iterator[tuple[str, ...]]:
    """A table's rows: constant, value, +-, as shipped, rows."""
    for name, constant in found.constants.items():
        before = found.before[name].value
        yield (
            name,
            f"{constant.value:.4g}",
            f"{constant.spread:.0%}",
            f"{before:.4g}",
            str(found.rows[name]),
        )


def errors_shown(found: Fitted) -> Iterator[tuple[str, ...]]:
    """A table's rows: what was fitted to, how many, the median error."""
    for kind, (rows, far) in found.errors.items():
        yield kind, str(rows), f"{far:.1%}"


def compared_shown(found: Fitted) -> Iterator[tuple[str, ...]]:
    """A table's rows: layer or model, measured ms, predicted ms, both errors."""
    for one in found.compared:
        after, before = found.predicted_s(one), found.predicted_s(one, fitted=False)
        yield (
            f"{one.kind}, {one.label}",
            f"{one.measured_s * 1e3:.2f}",
            f"{after * 1e3:.2f}",
            f"{after / one.measured_s - 1:+.1%}",
            f"{before / one.measured_s - 1:+.1%}",
        )
