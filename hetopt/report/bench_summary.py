"""The module sums up the rows of a suite: the numbers of every report."""

from dataclasses import dataclass
from fractions import Fraction

from ..bench import statistics
from ..bench.journal import Row
from ..bench.statistics import Entry, Summary
from ..files import best
from . import words


@dataclass(frozen=True)
class Report:
    """Header and rows of a run, and what they say."""

    header: Row
    rows: list[Row]
    entries: list[Entry]
    summaries: list[Summary]

    @property
    def contradicted(self) -> list[Entry]:
        """Plans better than a bound that some row calls proved: somebody is wrong."""
        return [entry for entry in self.entries if entry.contradicted]

    @property
    def counts(self) -> str:
        """Solved and proved, and what was not, in one sentence."""
        found = self.entries
        solved = sum(entry.solved for entry in found)
        proved = sum(entry.proved for entry in found)
        parts = []
        if found:
            parts = [
                f"{words.counted(len(found), 'solve')}: {solved} with a plan, "
                f"{proved} proved"
            ]
        none = sum(entry.status == "infeasible" for entry in found)
        if none:
            parts[0] += f" ({none} proved infeasible)"
        for status in statistics.UNSOLVED:
            if count := sum(entry.status == status for entry in found):
                parts.append(f"{count} {status}")
        if wrong := len(self.contradicted):
            parts.append(f"{wrong} CONTRADICTED by a bound of the same data")
        pages = [row for row in self.rows if row["kind"] == "page"]
        if pages:
            parts.append(f"{len(pages)} section{'s' * (len(pages) > 1)} of pages")
        if lost := sum(row["status"] != "made" for row in pages):
            parts.append(f"{lost} without an answer")
        if others := sum("commit" in row for row in self.rows):
            parts.append(f"{others} rows made at another commit than the first")
        missing = self.header.get("tasks", len(self.rows)) - len(self.rows)
        if missing > 0:
            parts.append(f"{missing} not run yet")
        return ", ".join(parts)


def report(header: Row, rows: list[Row]) -> Report:
    """Return what the rows of a folder say."""
    found = statistics.entries(rows, _best_known(rows))
    return Report(header, rows, found, statistics.summaries(found))


def _best_known(rows: list[Row]) -> dict[str, tuple[Fraction | None, Fraction | None]]:
    """Return what the library knows best of the rows' instances."""
    names = {row["instance"] for row in rows if row["kind"] == "solve"}
    found = [known for name in sorted(names) if (known := best.known(name))]
    return {b.digest: (b.value("bound"), b.value("objective")) for b in found}
