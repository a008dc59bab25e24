"""The stage table against the cost model, run by run; memory is asked of each."""

from fractions import Fraction
from itertools import product

import pytest
import soaking

from hetopt.costs import CostTable, Position
from hetopt.costs.formulas import shared
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Instance
from hetopt.stages import NEVER, StageTable


def _least_us(instance: Instance, node: str, group: tuple[int, int], span):
    """The least time of a replica that fits with one micro-batch."""
    (t, s), (first, last) = group, span
    layers = instance.model.layers
    found, v = NEVER, instance.workload.costs.schedule.interleave
    if last - first < v:  # no stage: as long as the shortest there is, before the end
        if first + v >= layers or last == layers:
            return NEVER
        last = first + v
    ends = last == layers
    for rule in instance.workload.recomputes:
        table = CostTable(instance).under(rule)
        if v > 1:
            places = [*_interleaved(first > 0, not ends)]
        else:
            j = int(first > 0)
            places = [Position(1, j + (1 if ends else 2), j)]
        needs = (
            sum(table.stage_mib(node, range(first, last), (t, s), place).values())
            for place in places
        )
        if min(needs) <= table.memory_mib(node):
            us = sum(table.layer_us(node, t, s)[first:last])
            found = min(found, us + (table.head_us(node, t, s) if ends else 0))
    return found


def _interleaved(before: bool, behind: bool):
    """Yield where stages may stand in pipelines of a multiple of P micro-batches."""
    for j in range(4) if before else (0,):
        for after in range(1, 4) if behind else (0,):
            stages = j + 1 + after
            yield from (Position(k * stages, stages, j) for k in (1, 2, 3))


@pytest.mark.parametrize("v", [2, 3, 4, 7])
def test_an_interleaved_stage_keeps_what_its_place_says_or_more(v):
    """P + (p - a) / v where that is no more than P, and never less than the fewest."""
    for before, behind, k in product(range(9), range(9), range(1, 4)):
        stages = before + 1 + behind
        kept = shared.in_flight(k * stages, stages, before, v)
        if stages == 1:
            assert kept == 1
            continue
        assert kept == min(k * stages, stages + Fraction(behind - before, v))
        last, first = 2 - Fraction(1, v), behind + 1
        assert kept >= (last if not behind else behind + 2 if before else first)


@pytest.mark.parametrize("seed", range(40))
def test_no_stage_is_slower_in_the_table_or_said_not_to_fit(seed):
    tree = soaking.drawn("pipelines", seed)["instance"]
    for instance in variants(Instance.model_validate(tree, strict=False))[:2]:
        table, layers = StageTable(instance), instance.model.layers
        for c, each in enumerate(table.classes):
            us = table.replica_us(c)
            for t, s in table.groups(each):
                for first in range(layers):
                    for last in range(first + 1, layers + 1):
                        node, run = each.nodes[-1], table.runs.number[first, last]
                        least = _least_us(instance, node, (t, s), (first, last))
                        assert us[t, s, run] == least, (c, t, s, first, last)
