"""A plan of offers is launched by the executor, and trains as any other plan does."""

import pytest

import hetopt
from hetopt import api
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan


def test_a_plan_of_offers_trains_like_one_gpu() -> None:
    pytest.importorskip("torch")
    rented = hetopt.provision("tiny/offers")
    data, plan = api.posed_training(rented)
    (pipeline,) = plan.pipelines
    gpus = next(plan.replicas()).gpus[:1]
    cluster = data.planned_cluster
    kind = cluster.node[gpus[0].partition(":")[0]].gpu
    large = cluster.gpus[kind].model_copy(update={"memory_gib": 10})
    roomy = cluster.model_copy(update={"gpus": {**cluster.gpus, kind: large}})
    alone = TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=pipeline.micro_batches,
                micro_batch_size=pipeline.micro_batch_size,
                stages=(
                    Stage(
                        layers=(0, data.model.layers),
                        replicas=(
                            Replica(gpus=gpus, samples=pipeline.micro_batch_size),
                        ),
                    ),
                ),
            ),
        )
    )
    words = {"steps": 2, "cpu": True, "precision": "fp32"}
    ours = hetopt.run(rented, **words)
    one = hetopt.run(alone, data.model_copy(update={"cluster": roomy}), **words)
    assert len(gpus) < len([*plan.replicas()])
    losses = [[step["loss"] for step in ran.steps] for ran in (ours, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
