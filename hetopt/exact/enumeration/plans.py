"""Plans of joined columns, with names of GPUs."""

from itertools import islice, pairwise

from ...plans import Pipeline, TrainingPlan
from ...plans import Replica as PlanReplica
from ...plans import Stage as PlanStage
from ...schema import Recompute
from .join import Joined
from .stages import Replica, Stage, StageTables


def _rule(tables: StageTables, stage: Stage) -> Recompute | None:
    """Return the rule of recomputation, None for the workload's own."""
    rule = stage[0].rule
    return tables.rules[rule] if rule else None


def with_named_gpus(tables: StageTables, found: Joined) -> TrainingPlan:
    """Return the plan of joined columns; GPUs of each pool are given in order."""
    free = [
        iter([f"{node}:{i}" for node in pool.nodes for i in range(pool.each)])
        for pool in tables.pools
    ]

    def with_names(replica: Replica) -> PlanReplica:
        gpus = tuple(islice(free[replica.pool], replica.t))
        return PlanReplica(gpus=gpus, samples=replica.samples)

    return TrainingPlan(
        pipelines=tuple(
            Pipeline(
                micro_batches=n,
                micro_batch_size=column.size,
                stages=tuple(
                    PlanStage(
                        layers=run,
                        replicas=tuple(map(with_names, stage)),
                        recompute=_rule(tables, stage),
                    )
                    for run, stage in zip(pairwise(cuts), column.stages, strict=True)
                ),
            )
            for column, cuts, n in zip(
                found.columns, found.cuts, found.micro_batches, strict=True
            )
        )
    )
