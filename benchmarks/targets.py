"""What each trainer costs: the best plan that it can run, on clusters of the library.

    python benchmarks/targets.py [--limit 30] [--only WORD] [--page] [--readme]

`hetopt.compare_targets`, which is `hetopt compare INSTANCE ... --targets`, with the
time limit for each target; and whether the target's exporter takes the plan. Appends
rows to results/targets.jsonl, and writes results/targets.md and results/targets.csv
from the latest run of each cluster; `--page` does that alone, `--only` takes the
clusters whose name has the word. `--readme` writes the first cluster's table between
`<!-- targets: begin -->` and `<!-- targets: end -->` of README.md in this folder. With
30 s all of it takes up to 20 minutes.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _measuring import RESULTS, keep, kept, publish
from _pages import grid

import hetopt
from hetopt.api.targets import FREEST, TargetRow
from hetopt.formats import exporting
from hetopt.report import words, writers
from hetopt.text import writing

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- targets: begin -->", "<!-- targets: end -->"
LINES, PAGE, TABLE = "targets.jsonl", "targets.md", "targets.csv"
CLUSTERS = (
    "hexiscale/setting-1-llama2-7b",
    "hexiscale/setting-2-llama2-13b",
    "hexiscale/setting-3-llama-30b",
    "autohet/three-types-24-gpt3-6.7b",
    "metis/t4-v100-32-gpt3-15b",
    "hexiscale/large-240-llama2-70b",
)
FIELDS = (
    *("instance", "gpus", "limit_s", "target", "status", "iteration_us", "bound_us"),
    *("gap", "slower", "slower_at_least", "slower_at_most", "planning_s"),
    *("exported", "reasons"),
)
HEADERS = (
    *("target", "iteration", "no faster than", "gap", "slower than the best found"),
    *("proved at least", "at most", "planning", "its exporter"),
)
SHAPE = "by numbers of parameters, not by its shape"
HEAD = """# What each trainer costs

Made by `python benchmarks/targets.py`: for every target the best plan that it can run,
with a bound on all such plans, as by `hetopt compare INSTANCE --targets`. `executor`
runs every plan that the architecture allows. *Slower than the best found* compares
plans; *proved at least* and *at most* hold for the best plans of both, whatever has not
been found: the target's own bound against the best plan, and its plan against the bound
of the freest. *Planning* is what the method took after the planners, which have half of
the limit. `targets.csv` has the same numbers, `targets.jsonl` the machine too.
"""
WORDS = """
What a launcher costs here is less its equal pipelines than the rules beside them. Grids
with uneven cuts (Megatron-LM, DeepSpeed; FlagScale adds degrees by stage)
come near the freest plans that were found, as hosts come in whole kinds and the slow
links between them leave little to win by odd shapes. A rule costs much where a cluster
or a model meets it: torchtitan cuts no pipeline between embedding and head that are
tied, as those of GPT-3 are; HexiScale recomputes every layer of four models of its own,
and has no plan of others. Where *most that is proved* is nothing, a longer search may
yet find that the target costs nothing, or more than the table says: bounds of
`executor` are weaker than those of grids.

Models of papers are told by numbers of parameters where the paper does so: plans and
times are real all the same. An exporter that needs the model's shape says so in its
column; it takes the counts that are those of a GPT layer of that width.
"""
Row = dict[str, Any]


def rows(name: str, limit: float) -> Iterator[Row]:
    """A row for each target of a cluster."""
    data = hetopt.load(name)
    gpus = sum(node.count for node in data.planned_cluster.nodes)
    for row in hetopt.compare_targets(name, limits=limit).rows:
        result = row.result
        yield {
            "instance": name,
            "gpus": gpus,
            "limit_s": limit,
            "target": row.target,
            "status": result.status.value,
            "iteration_us": _whole(result.objective),
            "bound_us": _whole(result.bound.value if result.bound else None),
            "gap": result.gap,
            "slower": row.slower,
            "slower_at_least": row.slower_at_least,
            "slower_at_most": row.slower_at_most,
            "planning_s": round(sum(result.seconds.values()), 2),
            "exported": exported(row),
            "reasons": list(result.reasons),
        }


def exported(row: TargetRow) -> str | None:
    """Whether the target's exporter takes the plan, or why not; None without one."""
    if row.result.plan is None or row.target == FREEST:
        return None
    why = exporting.reasons(row.target, row.result.data, row.result.plan)
    return "; ".join(why) or "accepts"


def _whole(value: Any) -> int | None:
    return None if value is None else round(value)


# --- the page ----------------------------------------------------------------------


def write_page() -> None:
    """The page and the table, from the latest run of each cluster."""
    lines = kept(LINES)
    latest = {(x["instance"], x["target"]): x for x in lines}
    text, made = [HEAD], []
    for name in CLUSTERS:
        mine = [x for (instance, _), x in latest.items() if instance == name]
        if mine:
            made += mine
            text += [_title(mine[0]), *grid(HEADERS, map(_cells, mine)), *_why(mine)]
    text.append(_summary(made))
    publish(PAGE, "\n".join(text), LINES)
    told = ({**x, "reasons": "; ".join(x["reasons"])} for x in made)
    table = [{key: x[key] for key in FIELDS} for x in told]
    writing.write_text(RESULTS / TABLE, writers.comma_separated(list(FIELDS), table))


def _title(row: Row) -> str:
    return f"## {row['instance']}: {row['gpus']} GPUs, {row['limit_s']:g} s a target\n"


def _cells(row: Row) -> list[str]:
    exporter = row["exported"] or words.NONE
    return [
        row["target"],
        words.amount(row["iteration_us"], "us"),
        words.amount(row["bound_us"], "us"),
        words.share(row["gap"]),
        words.share(row["slower"]),
        words.share(row["slower_at_least"]),
        words.share(row["slower_at_most"]),
        words.duration(row["planning_s"]),
        "needs the model's shape" if SHAPE in exporter else exporter,
    ]


def _why(mine: list[Row]) -> Iterator[str]:
    """Below a table: why a target has no plan."""
    yield ""
    for row in mine:
        if row["iteration_us"] is None:
            why = "; ".join(row["reasons"]) or "no reason is known"
            yield f"{row['target']}, {row['status']}: {why}.\n"


def _summary(made: list[Row]) -> str:
    """Over all clusters: the range of what each target costs."""
    text = ["## All clusters\n"]
    headers = ("target", "plans", "slower than the best found: least", "most")
    cells = []
    for name in dict.fromkeys(row["target"] for row in made):
        mine = [row for row in made if row["target"] == name]
        slower = [row["slower"] for row in mine if row["slower"] is not None]
        proved = max((row["slower_at_least"] or 0.0 for row in mine), default=0.0)
        least, most = (f(slower, default=None) for f in (min, max))
        told = [words.share(value) for value in (least, most, proved)]
        cells.append([name, f"{len(slower)} of {len(mine)}", *told])
    table = grid((*headers, "most that is proved"), cells)
    return "\n".join([*text, *table, WORDS])


def write_readme() -> None:
    """The first cluster's table, from its latest run."""
    lines = kept(LINES)
    latest = {x["target"]: x for x in lines if x["instance"] == CLUSTERS[0]}
    first = next(iter(latest.values()))
    told = (
        f"{first['instance']}, {first['gpus']} GPUs; by `python benchmarks/targets.py "
        f"--readme`, {first['limit_s']:g} s a target."
    )
    headers = ("target", "iteration", "no faster than", "slower than the best found")
    cells = ([_cells(row)[i] for i in (0, 1, 2, 4)] for row in latest.values())
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(grid(headers, cells))
    made = f"{before}{BEGIN}\n{told}\n\n{table}\n{END}{after}"
    writing.write_text(README, made)


def main(words: list[str] | None = None) -> None:
    """Run the clusters that were asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=30)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--readme", action="store_true")
    asked = parser.parse_args(words)
    for name in CLUSTERS if not (asked.page or asked.readme) else ():
        if asked.only in name:
            for row in rows(name, asked.limit):
                print(*_cells(row), flush=True)
                keep(LINES, row)
            write_page()
    write_page()
    if asked.readme:
        write_readme()


if __name__ == "__main__":
    main()
