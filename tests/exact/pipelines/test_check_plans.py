"""What the checker charges for pipelines of valid plans: never more than they use.

Uses are computed here from the plan and the judge's times, in fractions: GPUs, each
node's part of the replicas, and what replicas hold.
"""

from collections import Counter
from fractions import Fraction
from random import Random

import drawing
import numpy as np
import pytest
from claims import random_plans
from inputs import trials
from sites_of_nodes import in_sites
from soaking import pipelines

from hetopt.exact.checking.paths import Paths
from hetopt.exact.checking.prices import Part, Prices, Terms
from hetopt.exact.checking.segments import Segments
from hetopt.exact.checking.sharing import Box
from hetopt.exact.checking.stages import UNIT, Stages
from hetopt.plans import Pipeline, TrainingPlan
from hetopt.problems import Evaluation
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Instance


def drawn(rng: Random) -> Instance:
    """Return a cluster of a few GPUs under any setting that is not a plan's choice."""
    counts = tuple(rng.choice([1, 2, 2, 4]) for _ in range(rng.choice([1, 2, 3])))
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 2, 3, 5]),
        batch=rng.choice([4, 8]),
        sizes=rng.choice([(1,), (1, 2), (2,), (1, 2, 4)]),
    )
    drawing.leave_choices_out(tree)
    if rng.random() < 0.3:  # equal layers
        for field in ("layer_kinds", "layer_parameters", "active_layer_parameters"):
            tree["model"].pop(field, None)
    return drawing.read(in_sites(rng, tree) if rng.random() < 0.3 else tree)


class Uses:
    """What the pipelines of a plan use of the rows of a box."""

    def __init__(self, stages: Stages, plan: TrainingPlan) -> None:
        self.stages, self.plan = stages, plan
        sent = stages.table.exchanged
        divided = stages.table.divided(sent)
        own = [Fraction(p - r) for p, r in zip(sent.layers, divided, strict=True)]
        own[0] += sent.end or 0
        own[-1] += sent.end or 0
        size = Fraction(UNIT * len(own)) / (sum(own) or 1)
        self.size = [size * p for p in own]
        self.kind = {
            name: c for c, kind in enumerate(stages.kinds) for name in kind.nodes
        }
        self.held = Counter[tuple[str, int]]()
        for pipeline in plan.pipelines:
            self.held += self.of(pipeline)[1]
        self.replicas = Counter[int]()
        for (_, layer), number in self.held.items():
            self.replicas[layer] += number

    def hosts(self) -> list[int]:
        """Return how many nodes of each kind hold all replicas of some layer."""
        names = {
            name
            for (name, layer), number in self.held.items()
            if number == self.replicas[layer]
        }
        return [len(names.intersection(x.nodes)) for x in self.stages.kinds]

    @staticmethod
    def of(pipeline: Pipeline) -> tuple[Counter[str], Counter[tuple[str, int]]]:
        """Return GPUs by node, and replicas by node and layer."""
        gpus, held = Counter[str](), Counter[tuple[str, int]]()
        for stage in pipeline.stages:
            for replica in stage.replicas:
                gpus[replica.node] += replica.degree
                for layer in stage.span:
                    held[replica.node, layer] += 1
        return gpus, held

    def price(self, pipeline: Pipeline, prices: Prices, least: int) -> Fraction:
        """Return what a pipeline uses, at prices, if layers have `least` replicas."""
        gpus, held = self.of(pipeline)
        found = Fraction(sum(prices.gpu[self.kind[x]] * k for x, k in gpus.items()))
        for (node, layer), number in held.items():
            c, size = self.kind[node], self.size[layer] / UNIT
            whole = self.stages.kinds[c].gpus
            part = Fraction(self.held[node, layer], self.replicas[layer])
            need = (prices.share[c] + prices.shares) * Fraction(gpus[node], whole)
            found += size * (
                need * part - (prices.share[c] + prices.held) * Fraction(number, least)
            )
        return found


def boxed(rng: Random, uses: Uses, judged: Evaluation) -> Box:
    """Return a box that the plan is in."""
    sync = int(judged.parts["sync_us"])
    least, count = min(uses.replicas.values()), len(uses.plan.pipelines)
    span = sync - rng.randint(0, sync), rng.choice([None, sync, sync, 2 * sync + 9])
    low = rng.randint(1, least), rng.randint(1, count)
    replicas = low[0], least + rng.randint(0, 3)
    several = count + rng.randint(0, 3) if count > 1 or rng.random() < 0.3 else 1
    sizes = 0, len(uses.stages.sizes) - 1
    hosts = tuple(
        (rng.choice([0, n]), rng.choice([n, n, len(kind.nodes)]))
        for n, kind in zip(uses.hosts(), uses.stages.kinds, strict=True)
    )
    ranges = span, replicas, (low[1], several), sizes
    return Box(*ranges, hosts=rng.choice([(), hosts, hosts]))


def charged(rng: Random, instance: Instance, plans: Random) -> int:
    """Return how many pipelines of random plans were looked at."""
    (only,) = variants(instance)
    stages, number = Stages(only), 0
    for plan in random_plans(instance, plans, 12):
        judged = judge.evaluate(only, plan)
        apart = plan.gpu_count == 1 and stages.table.is_paced  # judged by themselves
        if apart or not judged.valid:
            continue
        uses = Uses(stages, plan)
        box = boxed(rng, uses, judged)
        row = [
            rng.choice([0, rng.randint(0, 10**4)])
            for _ in range(2 * len(stages.kinds) + 3)
        ]
        prices = Prices.of(tuple(row), len(stages.kinds), 1)
        assert prices is not None
        for pipeline, times in zip(plan.pipelines, judged.parts["stages"], strict=True):
            each = [time["compute_us"] + time["hop_us"] for time in times]
            if not prices.fit(stages, box, stages.sizes[-1], sum(each)):
                continue
            number += 1
            options = stages.options(pipeline.micro_batch_size)
            sync = box.sync[1] if stages.costs.sync_overlap == "none" else None
            terms = Terms(stages, box, prices, Part(options, 10**9, 10**9, sync))
            way = rng.choice([Segments, Paths] if stages.equal else [Paths])(terms)
            low, us_cost = rng.randint(1, max(each) + 1), rng.choice([0, 1, 1000])
            found = way.least(us_cost, np.array([low]), np.array([max(each)]))[0]
            used = uses.price(pipeline, prices, box.replicas[0])
            often = stages.costs.interleave * low
            assert found <= us_cost * sum(each) + often * used, (plan, box, prices)
    return number


@pytest.mark.parametrize("number", trials(60, 600))
def test_no_pipeline_of_a_plan_is_charged_more_than_it_uses(number: int) -> None:
    rng = Random("charged")
    assert sum(charged(rng, drawn(rng), rng) for _ in range(number)) > number // 2


@pytest.mark.parametrize("number", trials(40, 600))
def test_no_interleaved_pipeline_is_charged_more_than_it_uses(number: int) -> None:
    rng, found = Random("interleaved"), 0
    for _ in range(number):
        data = pipelines.draw_interleaved(rng)
        plans = Random(data["plans"])
        found += charged(rng, drawing.read(data["instance"]), plans)
    assert found > number // 2
