"""The table of gaps: rows of the suite `gaps`, beside what the library knows.

Plans of the rows are kept in results/gaps/plans, bounds and their certificates beside
the instances, so that every figure of the table can be checked.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetopt.bench import journal, statistics
from hetopt.bench.statistics import Entry
from hetopt.files import best
from hetopt.report import words
from hetopt.result import known_gap
from hetopt.text import writing

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
    """Return the table, with a word on how it was made."""
    header, rows = journal.read(folder)
    found = statistics.entries(rows)
    methods = list(dict.fromkeys(entry.method for entry in found))
    by_instance: dict[str, dict[str, Entry]] = {}
    for entry in found:
        by_instance.setdefault(entry.row["instance"], {})[entry.method] = entry
    cores = header["machine"]["cores"]
    limits = ", ".join(f"{limit:g} s" for limit in header["limits"]["time_limit_s"])
    released = [RELEASED[name] for name in by_instance if name in RELEASED]
    head = [
        f"The clusters of the HexiScale paper on {cores} cores: iteration time, and",
        "gap to the proved bound of [the table](#the-table), whose plans and bounds",
        "are the last columns. By `python benchmarks/run.py gaps --workers 2` and then",
        f"`python benchmarks/run.py --gaps`; time limits {limits}. The plans of",
        f"HexiScale's released planner take {', '.join(released)} s on the first",
        f"{len(released)} of them. {_dated(header)}",
        "",
    ]
    columns = ["instance", "GPUs", *methods, "best known", "no plan is faster than"]
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    lines += [_line(name, mine, methods) for name, mine in by_instance.items()]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


def keep_plans(folder: Path) -> None:
    """Leave of the documents of a run's plans what a plan file has: they are kept."""
    for file in sorted((folder / "plans").glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        kept = {name: document[name] for name in ("instance", "plan")}
        writing.write_text(file, json.dumps(kept, separators=(",", ":")) + "\n")


def _dated(header: Mapping[str, Any]) -> str:
    """What made the rows, and when."""
    made, day = str(header.get("commit"))[:10], str(header.get("started"))[:10]
    return f"Made by {header.get('hetopt')}-dev {made} ({day})."


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


def _line(name: str, mine: dict[str, Entry], methods: list[str]) -> list[str]:
    known = best.known(name)
    plan, bound = (
        None if known is None else known.value(what) for what in ("objective", "bound")
    )
    cells = (_cell(mine.get(method), bound) for method in methods)
    size = str(next(iter(mine.values())).row.get("size", words.NONE))
    lasts = (_amount(plan, bound), words.amount(bound, "us"))
    return [name.partition("/")[2], size, *cells, *lasts]


def _cell(entry: Entry | None, bound: Any) -> str:
    if entry is None:
        return words.NONE
    return entry.status if entry.objective is None else _amount(entry.objective, bound)


def _amount(objective: Any, bound: Any) -> str:
    """Return an objective and its gap to the bound, where there is one."""
    gap = known_gap(objective, bound)
    if gap is None:
        return words.amount(objective, "us")
    shown = f"{100 * gap:.0f}" if gap >= 1 else f"{100 * gap:.1f}"
    return f"{words.amount(objective, 'us')}, {shown}%"
