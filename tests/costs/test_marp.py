"""The memory predictor: the paper's formula and example, the cost model beside it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_plans import pipeline, stage
from small_instances import small

from hetopt.catalogue import model as model_fields
from hetopt.costs import marp
from hetopt.costs.job_rates import JobRates, Trained
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.scheduling import catalogue
from hetopt.schema import CostSettings, GpuType, ModelSpec

SIZES = ("gpt2", "gpt2-medium", "gpt2-xl", "gpt2-7b", "bert-base", "bert-large")
PLAIN = CostSettings(recompute="none")


def model(name: str) -> ModelSpec:
    return ModelSpec.model_validate(model_fields(name))


def in_floats(spec: ModelSpec, s: int, batch: int, d: int, t: int) -> float:
    """The formula of section IV-A, as it is printed."""
    v, h, l, a = spec.vocabulary, spec.hidden, spec.layers, spec.heads
    w = v * h + l * (12 * h**2 + 13 * h)
    return 20 * w / t + s * batch * h * l * (
        10 / d + 24 / (d * t) + 5 * a * s / (d * h * t)
    )


@given(
    name=st.sampled_from(SIZES),
    s=st.sampled_from([128, 512, 1024, 2048]),
    b=st.integers(1, 16),
    d=st.integers(1, 16),
    t=st.sampled_from([1, 2, 4, 8]),
)
def test_the_parts_add_up_to_the_printed_formula(
    name: str, s: int, b: int, d: int, t: int
) -> None:
    memory = marp.marp(model(name), s, b * d, d, t)
    assert memory.total == pytest.approx(in_floats(model(name), s, b * d, d, t))
    assert memory.states == pytest.approx(20 * marp.parameters(model(name)) / t)
    assert memory.beside == 0


def test_the_papers_inequality_is_strict_and_the_cost_models_is_not() -> None:
    full = marp.Memory(2**30, 0)
    gpu = GpuType(peak_tflops=1, memory_gib=1)
    assert not marp.fits(full, gpu, "marp")
    assert marp.fits(full, gpu, "cost_model")


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("costs", [PLAIN, CostSettings(), CostSettings(reserve_mib=7)])
def test_the_cost_model_is_what_the_judge_of_training_plans_finds(
    name: str, costs: CostSettings
) -> None:
    """One stage on t GPUs, one micro-batch: the judge's peak memory, to 4 MiB.

    The judge rounds the embedding and the head by themselves where they are not tied.
    """
    random = Random(name)
    d, t = random.choice([1, 2, 4]), random.choice([1, 2, 4])
    workload = {"global_batch": 3, "micro_batch_sizes": [3], "sequence_length": 256}
    instance = small(
        *("n=G*4", {"G": (100, 2000)}),
        model=model_fields(name),
        costs=costs.model_dump(mode="json"),
        **workload,
    )
    gpus = " ".join(f"n:{i}" for i in range(t))
    one = pipeline(1, 3, stage(0, instance.model.layers, (3, gpus)))
    plan = TrainingPlan.model_validate({"pipelines": [one]}, strict=False)
    found = training_plan.evaluate(instance, plan)
    assert not found.violations
    peak = found.parts["peak_memory_mib"]["n:0"]
    said = marp.cost_model(instance.model, 256, 3 * d, d, t, costs).total / 2**20
    assert said == pytest.approx(peak, abs=4)


# --- step times ------------------------------------------------------------------


def step_in_floats(
    spec: ModelSpec, s: int, batch: int, d: int, t: int, gpu: GpuType, link: float
) -> float:
    """Seconds of a step without overlap, from the formulas of the cost model."""
    b, h = batch // d, spec.hidden
    layer = 12 * h * h
    rate = gpu.peak_tflops * gpu.efficiency * 1e12
    flops = 3 * (2 * layer * b * s + 4 * b * s * s * h) * spec.layers
    flops += 3 * 2 * spec.vocabulary * h * b * s
    tensor = 8 * (t - 1) * 2 * b * s * h / (t * link) * spec.layers
    total = spec.layers * layer + spec.vocabulary * h
    sync = 2 * (d - 1) / d * 2 * total / (t * link)
    return flops / (t * rate) + tensor + sync


@pytest.mark.parametrize(("d", "t"), [(1, 1), (2, 1), (1, 4), (4, 2), (8, 1)])
def test_step_times_are_those_of_the_formulas_in_plain_floats(d: int, t: int) -> None:
    cluster = catalogue.simulator()
    rates = JobRates(cluster, PLAIN, "marp")
    trained = Trained("gpt2-xl", model("gpt2-xl"), 1024, 8)
    for node in ("node0", "node3"):
        gpu = cluster.gpus[cluster.node[node].gpu]
        link = float(cluster.node[node].intra_gbytes_per_s or 0) * 1e9
        want = step_in_floats(trained.model, 1024, 8, d, t, gpu, link)
        step = rates.step_us(trained, d, t, {node: d * t})
        assert step == pytest.approx(1e6 * want, rel=1e-6, abs=1)


@pytest.mark.parametrize(("name", "node"), [("gpt2-xl", "node3"), ("gpt2", "node0")])
def test_overlap_hides_the_backward_pass_of_the_layers(name: str, node: str) -> None:
    spec, cluster = model(name), catalogue.simulator()
    gpu = cluster.gpus[cluster.node[node].gpu]
    link = float(cluster.node[node].intra_gbytes_per_s or 0) * 1e9
    costs = CostSettings(recompute="none", sync_overlap="backward")
    step = JobRates(cluster, costs, "marp").step_us(
        Trained(name, spec, 1024, 8), 4, 2, {node: 8}
    )
    plain = step_in_floats(spec, 1024, 8, 4, 2, gpu, link)
    alone = step_in_floats(spec, 1024, 2, 1, 2, gpu, link)
    head = 6 * spec.vocabulary * spec.hidden * 2 * 1024
    head /= 2 * gpu.peak_tflops * gpu.efficiency * 1e12
    exposed = max(0.0, plain - alone - 2 / 3 * (alone - head))
    assert step == pytest.approx(1e6 * (alone + exposed), rel=1e-6, abs=1)
