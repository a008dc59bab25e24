"""Is the default command the best there is? 40 instances, every planner, with search.

    python benchmarks/default_plan.py 6 [SHARE/OF]    seconds a call; a part of the rows
    python benchmarks/default_plan.py 6 --above 1     those whose last ratio was above
    python benchmarks/default_plan.py --page          results/default_plan.md, anew

Every row is one instance: `hetopt plan` as it is, beside each planner alone and each of
the better ones with `--improve`, all in the same time. Seven variants of seven clusters
are those that hide weaknesses: ZeRO 3, lockstep, overlapped synchronisation,
interleaving, several sizes of micro-batches, choices of settings.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import _pages
from _measuring import kept, publish

import hetopt
from hetopt.api import methods_for
from hetopt.schema import Instance, set_fields

Row = dict[str, Any]
LINES, PAGE = "default_plan.jsonl", "default_plan.md"
IMPROVED = ("islands", "hexiscale", "autohet", "whale")
LIBRARY = (
    *("hexiscale/setting-1-llama2-7b", "hexiscale/setting-2-llama2-13b"),
    *("hexiscale/setting-3-llama-30b", "hexiscale/homogeneous-rdma-llama2-7b"),
    *("autohet/3-a100-5-h800-llama-6.7b", "autohet/a100-h20-8x8-gpt3-13b"),
    *("autohet/three-types-24-gpt3-6.7b", "autohet/h800-a100-8x8-bert-large"),
    *("metis/t4-v100-16-gpt3-6.7b", "metis/t4-v100-32-gpt3-15b"),
    *("metis/nonuniform-a-gpt3-1.3b", "metis/t4-v100-32-moe-27b"),
)
CLUSTERS = (
    *("hexiscale/setting-1-llama2-7b", "autohet/3-a100-5-h800-llama-6.7b"),
    *("autohet/three-types-24-gpt3-6.7b", "generated:unequal/24/1"),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "ZeRO 3": {"costs": {"zero": 3}},
    "lockstep": {"costs": {"pipeline": "lockstep"}},
    "overlap": {"costs": {"sync_overlap": "backward"}},
    "interleaved": {"costs": {"interleave": 2}},
    "sizes 1, 2": {"micro_batch_sizes": [1, 2]},
    "choices": {
        "costs": {"activations": "standard"},
        "alternatives": {"recompute": ["none", "selective"], "zero": [1]},
    },
    "executor": {"runs_on": "executor"},
}


def instances() -> Iterator[tuple[str, Instance]]:
    """Twelve of the library, and seven variants of four clusters."""
    for name in LIBRARY:
        yield name, hetopt.load(name)
    for name in CLUSTERS:
        for variant, fields in VARIANTS.items():
            tree = hetopt.load(name).model_dump(mode="json", exclude_unset=True)
            work = tree["workload"]
            set_fields(costs := work.get("costs", {}), fields.get("costs", {}))
            tree["workload"] = work | fields | {"costs": costs}
            yield f"{name}, {variant}", Instance.model_validate(tree, strict=False)


def rows(limit_s: float, wanted: Callable[[int, str], bool]) -> Iterator[Row]:
    """Rows of the wanted instances, by their number and name."""
    for number, (name, instance) in enumerate(instances()):
        if not wanted(number, name):
            continue
        found: dict[str, float] = {}
        for planner in methods_for("training_plan")["planners"]:
            for improve in (False, True) if planner in IMPROVED else (False,):
                result = hetopt.plan(instance, planner, improve=improve, limits=limit_s)
                if result.objective is not None:
                    found[planner + "+improve" * improve] = result.objective / 1e6
        default = hetopt.plan(instance, known=False, limits=limit_s)
        own = None if default.objective is None else default.objective / 1e6
        best = min(found, key=lambda word: found[word], default=None)
        yield {
            "instance": name,
            "default_s": own,
            "bound_s": default.bound and float(default.bound.value) / 1e6,
            "best_other": best,
            "other_s": best and found[best],
            "default / other": own / found[best] if own and best else None,
        }


def last() -> list[Row]:
    """The last row of every instance, in the order of the instances."""
    of = {line["row"]["instance"]: line for line in kept(LINES)}
    found = (of[name] for name, _ in instances() if name in of)
    return [{**one["row"], "load": one["machine"]["load"]} for one in found]


_HEAD = "# " + __doc__.partition("\n")[0] + "\n"
_WHY = """
A ratio above 1 is an instance on which another command was better in that time. Seconds
are of a search, so they move a little from run to run, and with the load of the machine
(beside each row, on 2 cores): all commands of a row ran one after another.

With `--above` rows are run again because they were bad, so luck helps them: compare
versions by a run of all rows. Where a planner of the list takes more than its share of
so short a time, the default has not heard of its plan.
"""


def write_page() -> None:
    """The page, from the last row of every instance."""
    found = last()
    for row in found:
        ratio = row["default / other"]
        row["default / other"] = None if ratio is None else f"{ratio:.4f}"
    text = "\n".join([_HEAD, *_pages.table(found), _WHY])
    publish(PAGE, text, LINES)


def main(words: list[str]) -> None:
    """Make rows, or the page."""
    if words == ["--page"]:
        write_page()
        return
    limit_s, wanted = float(words[0]), lambda number, name: True
    if len(words) > 1 and words[1] == "--above":
        ratios = {row["instance"]: row["default / other"] or 0 for row in last()}
        most = float(words[2])
        wanted = lambda number, name: ratios.get(name, 0) > most  # noqa: E731
    elif len(words) > 1:
        share, of = map(int, words[1].split("/"))
        wanted = lambda number, name: number % of == share  # noqa: E731
    for row in rows(limit_s, wanted):
        print(json.dumps(row), flush=True)
        told = {"section": "default", "run": "", "limit_s": limit_s, "row": row}
        _pages.keep(LINES, told)
    write_page()


if __name__ == "__main__":
    main(sys.argv[1:])
