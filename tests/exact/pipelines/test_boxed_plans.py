"""No box of the engine that holds a valid plan is refuted at its time."""

from random import Random

import pytest
import soaking
from boxed_plans import boxes, facts
from inputs import trials
from made_plans import pipeline, stage
from small_instances import small
from soaking import pipelines as soaked

from hetopt.errors import InstanceError, InternalError
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.boxes import Box
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

# So many inputs are drawn at least, and on until every way was among them.
_LEAST, _MOST = 20, 240

# What the engine has its own ways for; each must be among what is drawn.
_WAYS = {
    *("single", "replicas", "narrow sync", "refuted below", "nothing refuted"),
    *("sizes", "classes", "links", "recompute", "interleave", "lockstep", "both"),
    *("bottleneck", "overlap", "groups", "zero", "gpipe", "profile", "calibrated"),
    *("offload", "adapters", "pipeline factor", "sync factor"),
}


def _examined(trial, ways, least):
    """Run trials until every way was reached; return those that never were."""
    missed = set(ways)
    for seed in range(_MOST):
        if seed >= least and not missed:
            break
        word, reached = trial(seed)
        missed -= {word, *reached}
    return missed


def _drawn_by(draw):
    def trial(seed):
        try:
            return soaked.examined(draw(Random(seed)))
        except InstanceError:
            return "refused", set()

    return trial


def _any(seed):
    return soaked.examined(soaking.drawn("pipelines", seed))


_FEW = {"single", "refuted below"}
_IN_SITES, _INTERLEAVED = soaked.draw_in_sites, soaked.draw_interleaved


@pytest.mark.parametrize("least", trials(_LEAST, _MOST))
@pytest.mark.parametrize(
    ("trial", "ways"),
    [(_any, _WAYS), (_drawn_by(_IN_SITES), _FEW), (_drawn_by(_INTERLEAVED), _FEW)],
    ids=["any", "in sites", "interleaved"],
)
def test_no_valid_plan_is_refuted_whatever_way_is_drawn(trial, ways, least):
    assert not _examined(trial, ways, least), "never drawn"


def _instance(**changes):
    """Two nodes of two GPUs; a hop to two GPUs takes longer than one to one GPU."""
    costs = {"hop_factor": 1, "head": "omit", **changes.pop("costs", {})}
    model = {"layers": 2, **changes.pop("model", {})}
    asked = {"sequence_length": 256, "global_batch": 4, "micro_batch_sizes": [1]}
    hosts, gpus = "a=A*2 b=A*2", {"A": (100, 80)}
    return small(hosts, gpus, model=model, inter=2, rate=1, costs=costs, **asked)


def _plan(*stages, micro_batches=4):
    rows = (stage(*layers, (1, gpus)) for layers, gpus in stages)
    return pipeline(micro_batches, 1, *rows)


def _read(*pipelines):
    return TrainingPlan.model_validate({"pipelines": list(pipelines)}, strict=False)


_TWO_PIPELINES = _read(
    _plan(((0, 2), "a:0"), micro_batches=2), _plan(((0, 2), "b:0"), micro_batches=2)
)


def _free(us):
    rows = [
        {"gpu": "A", "tensor_parallel": t, "micro_batch": 1, "layer_us": [us, us]}
        for t in (1, 2)
    ]
    return {"layer_times": "profile", "profile": rows, "hop_factor": 0}


@pytest.mark.parametrize(
    ("more", "plan"),
    [({}, _read(_plan(((0, 2), "a:0")))), ({"sync_factor": 1}, _TWO_PIPELINES)],
)
def test_layers_that_take_no_time_are_not_divided_by(more, plan):
    instance = _instance(costs=_free(0) | more)
    plan = facts(instance, plan)
    assert plan.iteration_us == plan.sync_us * bool(more)
    assert (plan.iteration_us > 0) == bool(more)
    bound = PipelineBound(instance, plan.iteration_us, 0)
    for box in boxes(bound, plan, Random(1), 5):
        assert not bound.settles(box, plan.iteration_us)


def test_embeddings_far_larger_than_layers_are_carried():
    model = {"parameters_per_layer": 1, "vocabulary": 10_000_000}
    instance = _instance(model=model, costs={"head": "include"})
    tree = instance.model_dump(mode="json", exclude_unset=True)
    tree["cluster"]["gpus"]["A"]["memory_gib"] = 900_000
    instance = Instance.model_validate(tree, strict=False)
    plan = facts(instance, _TWO_PIPELINES)
    bound = PipelineBound(instance, plan.iteration_us, 0)
    assert bound.table.sync.high.max() <= 1 << 20
    for box in boxes(bound, plan, Random(1), 8):
        assert not bound.settles(box, plan.iteration_us)


def test_times_that_64_bits_do_not_carry_are_not_looked_at():
    instance = _instance()
    refutation = PipelineBound(instance, 1 << 55, 0).refute(1 << 55)
    while refutation.step():
        pass
    assert not refutation.proved
    tree = instance.model_dump(mode="json", exclude_unset=True)
    tree["cluster"]["gpus"]["A"] |= {"peak_tflops": 1e-6, "efficiency": 1e-9}
    tree["cluster"]["inter"] = {"gbytes_per_s": 1e-6, "latency_us": 1e9}
    slow = Instance.model_validate(tree, strict=False)
    bound = PipelineBound(slow, 1000, 0)  # no stage is that quick
    assert bound.settles(bound.first[0], 1000)


def test_times_beyond_those_prepared_for_are_not_looked_at():
    bound = PipelineBound(_instance(), 1000, 0)
    with pytest.raises(InternalError, match="prepared for 1000"):
        bound.refute(1001)


def test_segments_are_kept_for_one_size_of_micro_batches():
    """Where all limits are alike, too: larger micro-batches take longer."""
    rows = [
        {"gpu": "A", "tensor_parallel": 1, "micro_batch": b, "layer_us": [us, us]}
        for b, us in ((1, 10), (2, 1000))
    ]
    costs = {"layer_times": "profile", "profile": rows, "hop_factor": 0}
    tree = _instance(costs=costs).model_dump(mode="json", exclude_unset=True)
    tree["workload"]["micro_batch_sizes"] = [1, 2]
    for node in tree["cluster"]["nodes"]:
        node["count"] = 1
    instance = Instance.model_validate(tree, strict=False)
    plan = facts(instance, _read(_plan(((0, 2), "a:0"))))
    bound = PipelineBound(instance, plan.iteration_us, 0)
    bound.settles(Box(0, None, 1, 1, 1, 1, 1, 1), plan.iteration_us)
    assert not bound.settles(Box(0, None, 1, 1, 1, 1, 0, 0), plan.iteration_us)
