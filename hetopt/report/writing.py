"""A gap report to a file; the suffix says the format."""

import json
from collections.abc import Callable
from pathlib import Path

from ..errors import Unsupported
from ..gaps import GapReport
from ..text.writing import write_text
from . import page, text


def _json(report: GapReport) -> str:
    return json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[GapReport], str]] = {
    ".html": page.html,
    ".md": text.markdown,
    ".csv": text.comma_separated,
    ".json": _json,
}


def format_of(path: Path) -> Callable[[GapReport], str]:
    """The writer for a path; `Unsupported` lists the suffixes that there are."""
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise Unsupported(
            f"{path}: found suffix {path.suffix!r}, expected one of "
            f"{', '.join(FORMATS)}"
        ) from None


def write(report: GapReport, path: Path) -> None:
    """Write the report; a reader never sees half of it."""
    write_text(path, format_of(path)(report))
