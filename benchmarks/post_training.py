"""RL post-training beside published steps: shared or apart, and how long a step takes.

    python benchmarks/post_training.py [--only NAME ...] [--page]

`data/rl.yaml` has the rows: models, cards, nodes that train and that generate, answers
and their lengths, and the seconds of a step. Each row's own placement is judged, and
the bound of its cluster stands beside it. Where no mean length is published, it is the
one with which training takes as long as measured. Writes results/post_training.jsonl
and results/post_training.md.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from _measuring import asked, keep, kept, publish, wanted
from _pages import table

import hetopt
from hetopt.plans import Engines, PostTraining, TrainingPlan
from hetopt.problems import post_training
from hetopt.schema import Generation, Instance
from hetopt.search.fast_cost import FastCost, Pipe, stages_on
from hetopt.search.symmetric import equal_cuts

LINES, PAGE = "post_training.jsonl", "post_training.md"
DATA = Path(__file__).parent / "data" / "rl.yaml"
HEAD = """# RL post-training beside published steps

Steps that others published, at their own placement: nodes that train and that generate,
degrees, answers a step. "Bound" is the least step of any placement on the same GPUs; no
measured step is below it. Links between nodes, lengths of prompts and full
recomputation are assumed, passes of scoring are those of the configurations.

verl publishes no mean length: it is the one with which training takes as long as in the
row, so that only generation and what overlaps are tested there. NeMo-RL publishes no
times of phases. What its steps have beside generation, scoring, training and weights is
not known: dense models take 1.0 to 1.6 times what is predicted, Qwen3-30B-A3B about
twice. With engines of TP 16 and 32, which lie on whole nodes, steps take two to four
times as long: of such engines no decoding rate was published that we know of.
"""
TAIL = """
## Shared or apart

GPU seconds of a step in turn, over those apart: above one, apart is better.
"""
Row = dict[str, Any]


def instance(row: Row, mean: int) -> Instance:
    """The row's cluster, model and work."""
    nodes = row.get("shared") or row["train"] + row["generate"]
    hosts = "".join(f"n{i:02} slots=8 type={row['card']}\n" for i in range(nodes))
    degrees = row["degrees"]
    options = {
        "ports": 8,
        "port_gbytes_per_s": row["port_gbytes_per_s"],
        "inter_latency_us": row["latency_us"],
        "recompute": row["recompute"],
        "zero": row.get("zero", 1),
        **{f"{x}_parallel": degrees[x] for x in ("context", "expert") if x in degrees},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "hosts.txt")
        file.write_text(hosts)
        made = hetopt.assemble(
            row["model"],
            file,
            global_batch=row["batch"],
            sequence_length=row["longest"],
            format="hostfile",
            name=row["name"],
            options=options,
        )
    generation = Generation.model_validate(
        {
            "answers": row["answers"],
            "prompt_tokens": row["prompt"],
            "answer_tokens": {"mean": mean, "longest": row["longest"]},
            "staleness": row["staleness"],
            "scoring_passes": row["scoring"],
        }
    )
    return made.with_workload(generation=generation)


def trained(row: Row, made: Instance) -> TrainingPlan:
    """Equal pipelines of the row's degrees on the nodes that train."""
    train, cost = row.get("shared") or row["train"], FastCost(made)
    t, c, p = (row["degrees"].get(x, 1) for x in ("tensor", "context", "pipeline"))
    groups = [(node, t * c) for node in range(train) for _ in range(8 // (t * c))]
    copies, cuts = len(groups) // p, equal_cuts(made.model.layers, p)
    each = row["batch"] // copies
    chains = (stages_on(groups[i::copies], cuts) for i in range(copies))
    return cost.plan(Pipe(each, 1, chain) for chain in chains)


def placed(row: Row, mean: int) -> tuple[post_training.Data, PostTraining]:
    """The row's placement, as a plan."""
    made = instance(row, mean)
    first = 0 if "shared" in row else row["train"]
    last = row.get("shared") or row["train"] + row["generate"]
    ids = tuple(f"n{i:02}:{j}" for i in range(first, last) for j in range(8))
    half = "shared" if "shared" in row else "training"
    engines = (Engines(gpus=ids, degree=row["engine"]),)
    plan = PostTraining.model_validate({half: trained(row, made), "engines": engines})
    return post_training.data(made), plan


def told(row: Row, mean: int, limit_s: float) -> Row:
    """What is measured, predicted and proved of a row."""
    known: Row = {"row": row["name"], "mean": mean, "measured s": row["step_s"]}
    data, plan = placed(row, mean)
    judged = post_training.evaluate(data, plan)
    if judged.objective is None or judged.violations:
        return {**known, "not said because": str(judged.violations[0])}
    parts, predicted = judged.parts, judged.parts["step_us"] / 1e6
    bound = hetopt.solve(data, limits=limit_s).bound
    return {
        **known,
        "predicted s": predicted,
        "off": predicted / row["step_s"] - 1,
        "generates s": generation_us(parts) / 1e6,
        "generated s": row.get("generate_s"),
        "trains s": parts["training_us"] / 1e6,
        "bound s": None if bound is None else float(bound.value) / 1e6,
    }


def generation_us(parts: Row) -> int:
    """What the slowest engine takes."""
    return max(one["us"] for one in parts["engines"])


def inferred(row: Row) -> int:
    """The mean length with which training takes as long as was measured."""

    def long_enough(mean: int) -> bool:
        judged = post_training.evaluate(*placed(row, mean))
        return judged.parts["training_us"] >= row["update_s"] * 1e6

    lengths = range(64, row["longest"], 64)
    return lengths[min(bisect_left(lengths, True, key=long_enough), len(lengths) - 1)]


def rows() -> list[Row]:
    """The published rows, with what is assumed of all."""
    read = yaml.safe_load(DATA.read_text("utf-8"))
    return [{**read["assumed"], **row} for row in read["rows"]]


def pairs(found: list[Row]) -> Iterator[Row]:
    """Shared against apart, by GPU seconds: measured, and predicted."""
    named = {row["name"]: row for row in rows()}
    by_name = {row["row"]: row for row in found}
    for name in (x for x in by_name if x.endswith("-on")):
        both = [name, name.removesuffix("on") + "off"]
        if not all("predicted s" in by_name.get(x, {}) for x in both):
            continue
        nodes = [
            sum(named[x].get(part, 0) for part in ("shared", "train", "generate"))
            for x in both
        ]
        measured, predicted = (
            by_name[both[0]][of] * nodes[0] / (by_name[both[1]][of] * nodes[1])
            for of in ("measured s", "predicted s")
        )
        yield {
            "pair": name.removesuffix("-on"),
            "GPU seconds, shared / apart": measured,
            "predicted": predicted,
            "same sign": (measured > 1) == (predicted > 1),
        }


def page() -> None:
    """Write the page of the latest rows."""
    latest = {line["row"]["row"]: line["row"] for line in kept(LINES)}
    found = [latest[row["name"]] for row in rows() if row["name"] in latest]
    publish(
        PAGE, "\n".join([HEAD, *table(found), TAIL, *table([*pairs(found)])]), LINES
    )


def main() -> None:
    given = asked(__doc__, 10)
    for row in rows():
        if row["name"] in wanted([row["name"]], given):
            mean = row["mean"]
            mean = inferred(row) if mean is None else mean - row["prompt"]
            found = told(row, mean, given.limit)
            print(found, flush=True)
            keep(LINES, {"row": found})
    page()


if __name__ == "__main__":
    main()
