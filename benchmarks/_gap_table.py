"""The table of gaps, made from the rows of the suite `gaps`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetopt.bench import journal, statistics
from hetopt.bench.statistics import Entry
from hetopt.report import words

BEGIN, END = "<!-- gaps: begin -->", "<!-- gaps: end -->"
# The plans that HexiScale's released planner found, as we judge them.
RELEASED = {
    "hexiscale/setting-1-llama2-7b": "62.0",
    "hexiscale/setting-1-llama2-13b": "122.0",
    "hexiscale/setting-2-llama2-7b": "56.1",
    "hexiscale/setting-2-llama2-13b": "91.5",
    "hexiscale/setting-3-llama-30b": "290.1",
    "hexiscale/large-240-llama-30b": "305.1",
}


def made(folder: Path) -> str:
    """The table, with a word on how it was made."""
    header, rows = journal.read(folder)
    found = statistics.entries(rows)
    methods = list(dict.fromkeys(entry.method for entry in found))
    # The exact method comes last, as what the others are to be measured by.
    methods.sort(key="exact".__eq__)
    by_instance: dict[str, dict[str, Entry]] = {}
    for entry in found:
        by_instance.setdefault(entry.row["instance"], {})[entry.method] = entry
    cores = header["machine"]["cores"]
    limits = ", ".join(f"{limit:g} s" for limit in header["limits"]["time_limit_s"])
    released = [RELEASED[name] for name in by_instance if name in RELEASED]
    head = [
        f"The clusters of the HexiScale paper on {cores} cores: iteration time, and",
        "gap to the proved bound. By `python benchmarks/run.py gaps --workers 2` and",
        f"then `python benchmarks/run.py --gaps`; time limits {limits}. The plans of",
        f"HexiScale's released planner take {', '.join(released)} s on the first",
        f"{len(released)} of them. {_dated(header)}",
        "[the table](#the-table) has what is best known.",
        "",
    ]
    columns = ["instance", "GPUs", "no plan is faster than", *methods]
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    lines += [_line(mine, methods) for mine in by_instance.values()]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


def _dated(header: Mapping[str, Any]) -> str:
    """What made the rows, and when."""
    made, day = str(header.get("commit"))[:10], str(header.get("started"))[:10]
    return f"Made by {header.get('hetopt')}-dev {made} ({day}); older than the code:"


def replaced(text: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with this table between the marks; `ValueError` without them."""
    before, begin, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(
            f"benchmarks/README.md: found no {marks[0]} ... {marks[1]}, expected both; "
            "add it"
        )
    return f"{before}{begin}\n{table}\n{end}{after}"


def _line(mine: dict[str, Entry], methods: list[str]) -> list[str]:
    some = next(iter(mine.values()))
    name = str(some.row["instance"]).partition("/")[2]
    bound = None if some.reference is None else some.reference
    shown = [words.amount(bound, "us"), *(_cell(mine.get(m)) for m in methods)]
    return [name, str(some.row.get("size", words.NONE)), *shown]


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return words.NONE
    if entry.objective is None or entry.gap_to_bound is None:
        return entry.status
    gap = 100 * entry.gap_to_bound
    shown = f"{gap:.0f}" if gap >= 100 else f"{gap:.1f}"
    return f"{words.amount(entry.objective, 'us')}, {shown}%"
