"""A symmetric plan of a calibrated instance takes what its run takes by the physics."""

import pytest

from hetopt.catalogue.constants import constants
from hetopt.costs.calibrated import lookup
from hetopt.physics.architecture import Architecture
from hetopt.physics.layout import Layout
from hetopt.physics.machine import Machine
from hetopt.physics.step import terms
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

SHAPE = {"hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336}
SHAPE |= {"gated": True, "vocabulary": 32000}
MACHINE = Machine(
    "A100", "Ampere", {"fp16": 312e12, "bf16": 312e12}, 2039e9, 80, 8, 8, 300e9, 8, 25e9
)


def judged_s(run: Layout) -> float:
    """Seconds of the plan that the run is, but for what an iteration costs besides."""
    gpu = {"peak_tflops": 312, "memory_gib": 900, "memory_gbytes_per_s": 2039}
    gpu |= {"card": "A100", "generation": "Ampere", "peaks": {"bf16": 312}}
    calibration = {"framework": run.framework, "style": run.style, "spread": 0.1}
    calibration |= {"kernel": run.kernel, "precision": "bf16"}
    costs = {"layer_times": "calibrated", "recompute": run.recompute, "flash": True}
    costs |= {"calibration": calibration | {"constants": dict(constants())}}
    costs |= {"sequence_parallel": True, "sync_factor": 0}
    nodes = [
        {"name": f"n{i}", "gpu": "a", "count": 8, "intra_gbytes_per_s": 300}
        for i in range(run.gpus // 8)
    ]
    batch = run.micro_batch * run.micro_batches * run.dp
    document = {
        "name": "run",
        "model": {"name": "m", "layers": 16, **SHAPE},
        "workload": {
            "sequence_length": run.sequence,
            "global_batch": batch,
            "micro_batch_sizes": (run.micro_batch,),
            "costs": costs,
        },
        "cluster": {"gpus": {"a": gpu}, "nodes": nodes, "inter": {"gbytes_per_s": 25}},
    }
    instance = Instance.model_validate(document, strict=False)
    ids = [f"n{i}:{j}" for i in range(run.gpus // 8) for j in range(8)]
    each = 16 // run.pp

    def stage(d: int, j: int) -> Stage:
        first = (j * run.dp + d) * run.tp
        gpus = tuple(ids[first : first + run.tp])
        replica = Replica(gpus=gpus, samples=run.micro_batch)
        return Stage(layers=(j * each, (j + 1) * each), replicas=(replica,))

    pipelines = tuple(
        Pipeline(
            micro_batches=run.micro_batches,
            micro_batch_size=run.micro_batch,
            stages=tuple(stage(d, j) for j in range(run.pp)),
        )
        for d in range(run.dp)
    )
    found = training_plan.evaluate(instance, TrainingPlan(pipelines=pipelines))
    assert found.valid
    return found.objective / 1e6


@pytest.mark.parametrize(("dp", "tp", "pp"), [(8, 1, 1), (2, 4, 1), (4, 2, 2)])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_plan_and_run_agree(dp: int, tp: int, pp: int, recompute: str) -> None:
    run = Layout(
        "megatron", "fused", "bf16", 4096, 1, 16, dp, tp=tp, pp=pp,
        recompute=recompute, kernel="cudnn",
    )  # fmt: skip
    model = Architecture(layers=(("attention", "dense"),) * 16, head_dim=128, **SHAPE)
    found = terms(lookup(constants(), set()), MACHINE, model, run)
    besides = sum(found[name] for name in ("gradients", "iteration"))
    # Hops and the bubble are laid out differently, and take a few per cent.
    assert judged_s(run) == pytest.approx(sum(found.values()) - besides, rel=0.03)
