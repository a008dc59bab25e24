"""The stage table against the cost model, run by run; memory is asked of each."""

import pytest
import soaking

from hetopt.costs import CostTable, Position
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Instance
from hetopt.stages import NEVER, StageTable


def _least_us(instance: Instance, node: str, group: tuple[int, int], span, flight: int):
    """The least time of a replica that fits where its stage keeps `flight` batches."""
    (t, s), (first, last) = group, span
    layers = instance.model.layers
    found = NEVER
    for rule in instance.workload.recomputes:
        table = CostTable(instance).under(rule)
        j, ends = int(first > 0), last == layers
        kept = 1 if ends else flight  # of the micro-batches of the pipeline
        stages = j + 1 if ends else j + max(2, flight)
        need = table.stage_mib(
            node, range(first, last), (t, s), Position(kept, stages, j)
        )
        if sum(need.values()) <= table.memory_mib(node):
            us = sum(table.layer_us(node, t, s)[first:last])
            found = min(found, us + (table.head_us(node, t, s) if ends else 0))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_stage_is_slower_in_the_table_or_said_not_to_fit(seed):
    tree = soaking.drawn("pipelines", seed)["instance"]
    for instance in variants(Instance.model_validate(tree, strict=False))[:2]:
        table, layers = StageTable(instance), instance.model.layers
        for c, each in enumerate(table.classes):
            for flight in (1, 3) if table.places else (1,):
                us = table.replica_us(c, flight)
                for t, s in table.groups(each):
                    for first in range(layers):
                        for last in range(first + 1, layers + 1):
                            node, run = each.nodes[-1], table.runs.number[first, last]
                            least = _least_us(
                                instance, node, (t, s), (first, last), flight
                            )
                            assert us[t, s, run] == least, (c, t, s, first, last)
