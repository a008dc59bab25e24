"""Replicas of one GPU each, as plans."""

from collections.abc import Iterable

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Recompute

LAYERS = 12  # of the exported instance


def plan_of(ranks: Iterable[tuple[str, int, int, Recompute | None]]) -> TrainingPlan:
    """The plan of ranks: a GPU, its samples, its micro-batches, how it recomputes."""
    return TrainingPlan(
        pipelines=tuple(
            Pipeline(
                micro_batches=n,
                micro_batch_size=samples,
                stages=(
                    Stage(
                        layers=(0, LAYERS),
                        replicas=(Replica(gpus=(gpu,), samples=samples),),
                        recompute=rule,
                    ),
                ),
            )
            for gpu, samples, n, rule in ranks
        )
    )
