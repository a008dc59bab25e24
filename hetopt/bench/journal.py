"""Rows on disk: one JSON document a line, flushed row by row, resumed after a kill.

The first line says on what the rows were measured (`hetopt.bench.machine`); every
other line is a row. A row is on the disk before the next one is looked at, so that a
kill loses at most the rows in flight; the line that it tore is dropped.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import FileIO
from pathlib import Path

from ..errors import InstanceError
from ..text.complaints import shown
from ..text.documents import Document
from ..text.marks import unmarked
from ..text.writing import writable, write_json, write_text

ROWS = "rows.jsonl"
PLANS = "plans"
# What may differ between a run and the one that goes on with it; rows that were made
# at another commit than the header's say so.
PASSING = {"started", "load", "workers", "modified", "commit", "schema"}

Row = Document


class Journal:
    """The rows of one folder, open for more."""

    def __init__(self, folder: Path, file: FileIO, rows: list[Row], told: Row) -> None:
        self.folder = folder
        self.rows = rows
        self._file = file
        self._told = told

    def add(self, row: Row, document: Document | None) -> None:
        """Keep a row, and the document of its plan before it."""
        if document is not None:
            row = {**row, "plan_file": plan_file(row["key"])}
            with writable(self.folder / PLANS):
                (self.folder / PLANS).mkdir(exist_ok=True)
            write_json(self.folder / row["plan_file"], document)
        row = {**row, **self._told}
        self.rows.append(row)
        _append(self._file, self.folder / ROWS, row)


def plan_file(key: str) -> str:
    """Where the document of a row lies in its folder."""
    return f"{PLANS}/{sha256(key.encode()).hexdigest()[:16]}.json"


@contextmanager
def journal(folder: Path, header: Row, *, resume: bool) -> Iterator[Journal]:
    """The journal of a folder, new or, with `resume`, gone on with.

    `InstanceError` for a folder that has rows without `resume`, whose rows were made
    under another header, or that another run is writing to.
    """
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / ROWS
    if path.exists() and path.stat().st_size and not resume:
        raise InstanceError(
            f"{path}: found rows of an earlier run, expected a new folder; name "
            "another, or go on with --resume"
        )
    with writable(path):
        opened = path.open("ab", buffering=0)
    with opened as file:
        _lock(file, path)
        lines = _lines(path)
        file.truncate(sum(len(line) for line, _ in lines))
        told: Row = {}
        if lines:
            old = lines[0][1]
            _refuse_another(path, unmarked(old, path), header)
            if old.get("commit") != header.get("commit"):
                told = {"commit": header.get("commit")}
        else:
            _append(file, path, header)
        yield Journal(folder, file, [row for _, row in lines[1:]], told)


def read(folder: Path) -> tuple[Row, list[Row]]:
    """Header and rows of a folder, or of a file of rows; a torn last line is no row.

    `InstanceError` for a file that is absent, or holds something else.
    """
    path = folder if folder.is_file() else folder / ROWS
    if not path.is_file():
        raise InstanceError(
            f"{path}: found no such file, expected the rows of `hetopt bench`; name "
            "the folder of its --out"
        )
    lines = _lines(path)
    if not lines:
        raise InstanceError(f"{path}: found no whole line, expected rows; run it again")
    header, *rows = (row for _, row in lines)
    unmarked(header, path)
    if "suite" not in header:
        raise InstanceError.at(
            path,
            "line 1",
            "found no suite, expected the header of a run; name a folder of `hetopt "
            "bench`",
        )
    return header, rows


def sort(folder: Path, keys: Iterable[str]) -> None:
    """Put the rows of a finished run into the order of its tasks."""
    header, rows = read(folder)
    place = {key: number for number, key in enumerate(keys)}
    if strange := [row["key"] for row in rows if row["key"] not in place]:
        raise InstanceError.at(
            folder / ROWS,
            "key",
            f"found {shown(strange[0])}, expected the key of a solve of the suite; "
            "remove its line, and go on with --resume",
        )
    rows.sort(key=lambda row: place[row["key"]])
    text = b"".join(map(_line, [header, *rows])).decode("utf-8")
    write_text(folder / ROWS, text)


# --- lines -----------------------------------------------------------------------


def _append(file: FileIO, path: Path, document: Row) -> None:
    """Add a line, on the disk when this returns; a part of it is dropped when read."""
    with writable(path):
        left = memoryview(_line(document))
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())


def _line(document: Row) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"


def _lines(path: Path) -> list[tuple[bytes, Row]]:
    """Lines with their ends, and what they hold; the torn last one left out."""
    found: list[tuple[bytes, Row]] = []
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line if line.endswith(b"\n") else b"")
        except ValueError:
            if number == len(lines):
                break
            row = None
        if not isinstance(row, dict):
            words = "found no JSON object, expected a row; remove the line, and go on "
            raise InstanceError.at(path, f"line {number}", f"{words}with --resume")
        if number > 1 and not isinstance(row.get("key"), str):
            raise InstanceError.at(
                path,
                f"line {number}: key",
                f"found {shown(row.get('key'))}, expected a row with its key; remove "
                "the line, and go on with --resume",
            )
        found.append((line, row))
    return found


def _refuse_another(path: Path, old: Row, new: Row) -> None:
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in PASSING and old.get(name) != new.get(name):
            raise InstanceError(
                f"{path}: {name}: found {json.dumps(old.get(name))}, expected "
                f"{json.dumps(new.get(name))}: rows of two kinds of run are not one "
                "measurement; start in another folder"
            )


def _lock(file: FileIO, path: Path) -> None:
    """One run a folder; the lock goes with its process, however that ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InstanceError(
            f"{path}: found another run writing here, expected none; wait for it, or "
            "name another folder"
        ) from None
