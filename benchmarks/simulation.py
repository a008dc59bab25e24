"""The closed form of a pipeline's time against the simulation, plan by plan.

    python benchmarks/simulation.py [SECTION ...] [--data FOLDER]

Plans: those that the papers print, those that HexiScale's released planner found (in
`peer_plans/` of the folder, or of HETOPT_DATA; left out without), and what our planners
find on the papers' instances. Every section appends a line to
results/simulation.jsonl, with a row a plan; results/simulation.md shows their means by
family. All of it takes about 8 minutes, nearly all of it planning.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from _measuring import keep, kept, publish

import hetopt
from hetopt.explaining.simulator import Simulation, simulate
from hetopt.files import load_instance, load_plan
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance, set_fields
from hetopt.text import markdown

LINES, PAGE = "simulation.jsonl", "simulation.md"
LIBRARY = Path(__file__).parent.parent / "instances"
FAMILIES = ("autohet", "hexiscale", "metis")
PLANNERS = ("autohet", "hexiscale", "islands", "megatron", "whale")
MOST_GPUS, PLANNING_S = 64, 10.0
CAUSES = {  # of judged less simulated, in the words of the page
    "slots": "slots of the slowest stage",
    "rounding": "rounding",
    "filling": "filling before it",
    "behind": "hidden behind it",
    "draining": "draining before it",
    "other pipeline": "another pipeline ends last",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A plan with its instance, and who made it."""

    family: str
    planner: str
    instance: Instance
    plan: TrainingPlan


@cache
def cases(data: Path) -> tuple[Case, ...]:
    """All plans; each is made once."""
    return (*_read(data), *_made())


def _read(data: Path) -> Iterator[Case]:
    printed = sorted((LIBRARY / "hexiscale").glob("*.plan.json"))
    peers = sorted((data / "peer_plans").glob("*.json"))
    for planner, files in (("the paper", printed), ("released planner", peers)):
        for file in files:
            _, instance, plan = load_plan(file)
            yield Case("hexiscale", planner, instance, plan)


def _made() -> Iterator[Case]:
    for family in FAMILIES:
        for file in sorted((LIBRARY / family).glob("*.yaml")):
            instance = load_instance(file)
            if instance.planned_cluster.gpu_count > MOST_GPUS:
                continue
            for planner in PLANNERS:
                found = hetopt.plan(instance, planner, limits=PLANNING_S)
                if isinstance(found.plan, TrainingPlan):
                    yield Case(family, planner, instance, found.plan)


def closed_form(data: Path) -> Iterator[Row]:
    """As the instances say, 1F1B or GPipe: the judge's time and the simulation's."""
    for case in cases(data):
        found = simulate(case.instance, case.plan)
        yield {**_named(case), **_compared(found)}


def gpipe(data: Path) -> Iterator[Row]:
    """The same plans under GPipe, which the closed form does not tell from 1F1B."""
    for case in cases(data):
        found = simulate(case.instance, case.plan, "gpipe")
        yield {**_named(case), **_compared(found)}


def interleaved(data: Path) -> Iterator[Row]:
    """Two runs of layers a stage, where stages and micro-batches allow them."""
    for case in cases(data):
        if case.instance.workload.costs.pipeline != "critical":
            continue
        if max(len(pipeline.stages) for pipeline in case.plan.pipelines) < 2:
            continue
        instance = _with_costs(case.instance, interleave=2, in_flight="1f1b")
        broken = training_plan.evaluate(instance, case.plan).violations
        if not any(one.rule == "interleave" for one in broken):
            found = simulate(instance, case.plan)
            yield {**_named(case), **_compared(found)}


def overlapped(data: Path) -> Iterator[Row]:
    """Simulated: what is saved by stages that compute while they send."""
    for case in cases(data):
        sent = simulate(case.instance, case.plan)
        hidden = simulate(case.instance, case.plan, transfers="overlapped")
        charged, less = (max(x.total_us for x in y.timelines) for y in (sent, hidden))
        yield {
            **_named(case),
            "judged_us": max(sent.judged_us),
            "simulated_us": float(less),
            "equal": charged == less,
            "percent": _percent(charged - less, charged),
            "causes_percent": {},
        }


SECTIONS: dict[str, tuple[Callable[[Path], Iterator[Row]], str]] = {
    "closed_form": (
        closed_form,
        "The closed form is never below here. It charges the time of the stages behind "
        "the slowest one in full; under 1F1B that one has a micro-batch ahead for each "
        "of them and works meanwhile, so that part is hidden, the more the deeper the "
        "pipeline and the fewer the micro-batches. The largest difference is a paper's "
        "plan of its case study, of 10 and 14 micro-batches: `lockstep` lets every "
        "slot take as long as its slowest stage, and the pipeline that the judge calls "
        "the slower one ends first.",
    ),
    "gpipe": (
        gpipe,
        "GPipe takes sum tau + (n - 1) (max forward + max backward), the closed form "
        "sum tau + (n - 1) max (forward + backward): less, where one stage is the "
        "slowest forward and another one backward. Half of a hop is charged to each "
        "pass, but the backward pass computes two or three times as long: a stage that "
        "sends over a slow link is slow forward, one with more to compute backward. An "
        "instance with `in_flight: gpipe` is judged too fast by as much.",
    ),
    "interleaved": (
        interleaved,
        "Judged with n max tau + (sum of the other taus) / 2. Stages behind the "
        "slowest are hidden as above; below 0 the slowest one waits for them longer "
        "than the half that is charged. Memory may be refused by the judge; plans are "
        "timed all the same.",
    ),
    "overlapped": (
        overlapped,
        "In % of the simulation with hops charged to the sender, as blocking sends "
        "are and the judge does: too much by this where a framework computes while it "
        "sends. Links carry one micro-batch at a time in each direction, and nothing "
        "else.",
    ),
}


def _with_costs(instance: Instance, **costs: Any) -> Instance:
    document = instance.model_dump(mode="json")
    set_fields(document["workload"]["costs"], costs)
    return Instance.model_validate(document, strict=False)


def _named(case: Case) -> Row:
    return {
        "family": case.family,
        "planner": case.planner,
        "instance": case.instance.name,
        "pipelines": len(case.plan.pipelines),
        "stages": max(len(pipeline.stages) for pipeline in case.plan.pipelines),
    }


def _compared(found: Simulation) -> Row:
    """The slowest pipelines, and why they differ; `SystemExit` if a part is left over.

    In % of the judged time: of the pipeline that the judge takes for the slowest, and
    by how much another one ends later in the simulation.
    """
    judged = max(found.judged_us)
    number = found.judged_us.index(judged)
    why = found.delays()[number]
    total = max(line.total_us for line in found.timelines)
    lockstep = abs(why.judge_us) >= 1  # less than a microsecond is rounding
    causes = {
        "slots": why.judge_us * lockstep,
        "rounding": why.judge_us * (not lockstep),
        "filling": why.before_us,
        "behind": why.behind_us,
        "draining": why.after_us,
        "other pipeline": found.timelines[number].total_us - total,
    }
    if sum(causes.values()) != judged - total:
        raise SystemExit(f"{judged - total} us differ, {causes} explain them")
    return {
        "judged_us": judged,
        "simulated_us": float(total),
        "equal": judged == total,
        "percent": _percent(judged - total, judged),
        "causes_percent": {
            name: _percent(cause, judged) for name, cause in causes.items() if cause
        },
    }


def _percent(part: Fraction, whole: Fraction | int) -> float:
    return round(float(100 * part / whole), 7)


def write_page() -> None:
    """The Markdown page: means by family and planner of the latest run of a section."""
    lines = kept(LINES)
    words = [
        "# Closed form and simulation\n",
        "Made by `python benchmarks/simulation.py`. Times of the slowest pipeline, "
        "without synchronisation. Differences in % of the judged time; above 0 the "
        "judge says more. Causes are exact and add up to the difference of each plan; "
        "`pipeline_delays.py` says how. `simulation.jsonl` has all rows, the machine "
        "and versions.\n",
    ]
    for name, (section, why) in SECTIONS.items():
        mine = [line for line in lines if line["section"] == name]
        if mine:
            words += [f"## {section.__doc__}\n", *_table(mine[-1]["rows"])]
            words.append(f"\n{why}\n")
    publish(PAGE, "\n".join(words), LINES)


def _table(rows: list[Row]) -> Iterator[str]:
    named = [x for x in CAUSES if any(row["causes_percent"].get(x) for row in rows)]
    headers = ["plans of", "by", "plans", "equal", "least, %", "mean, %", "most, %"]
    headers += [f"mean: {CAUSES[name]}, %" for name in named]
    yield markdown.line(headers)
    yield "|---" * 2 + "|---:" * (len(headers) - 2) + "|"
    groups = sorted({(row["family"], row["planner"]) for row in rows})
    for family, planner in groups:
        of = (family, planner)
        yield _line(*of, [r for r in rows if (r["family"], r["planner"]) == of], named)
    yield _line("all", "", rows, named)


def _line(family: str, planner: str, rows: list[Row], named: list[str]) -> str:
    found = [row["percent"] for row in rows]
    equal = sum(row["equal"] for row in rows)
    numbers = [min(found), fmean(found), max(found)]
    causes = [row["causes_percent"] for row in rows]
    numbers += [fmean(each.get(name, 0.0) for each in causes) for name in named]
    cells = [family, planner, str(len(rows)), str(equal), *(map(_shown, numbers))]
    return markdown.line(map(markdown.cell, cells))


def _shown(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.005 else "0" if not value else "~0"


def main(words: list[str] | None = None) -> None:
    """Run the sections that were asked for, print their rows, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder that has peer_plans/")
    asked = parser.parse_args(words)
    folder = asked.data or Path(os.environ.get("HETOPT_DATA", "."))
    for name in asked.sections or SECTIONS:
        run, rows = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()), []
        for row in SECTIONS[name][0](folder):
            rows.append(row)
            print(f"{name:12} {row['instance']:40} {row['planner']:17}", end="")
            print(f"{row['judged_us']:14} {row['percent']:8.3f} %", flush=True)
        keep(LINES, {"section": name, "run": run, "rows": rows})
    write_page()


if __name__ == "__main__":
    main()
