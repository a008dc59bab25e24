"""LoRA of a job: memory and time against sums over every matrix of the model."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.catalogue import model as model_fields
from hetopt.costs import marp
from hetopt.costs.job_rates import JobRates, Trained
from hetopt.problems import job_scheduling
from hetopt.problems.job_scheduling import Assumptions, Data, Job, JobModel
from hetopt.scheduling import bounds, catalogue, simulator
from hetopt.schema import CostSettings, Lora, ModelSpec

NAMES = ("gpt2", "llama-3-8b", "qwen2.5-7b", "mixtral-8x7b", "deepseek-moe-16b")
NODES = catalogue.cluster([("A100-40G", 8), ("A100-40G", 8)], 5.0)
Recompute = Literal["none", "selective", "full"]
Matrix = tuple[int, int, bool]  # both sizes, and whether every token uses it


def model(name: str) -> ModelSpec:
    return ModelSpec.model_validate(model_fields(name))


def matrices(spec: ModelSpec) -> list[Matrix]:
    """Every matrix that gets an adapter; of experts, the first few are used."""
    h, kv = spec.hidden, (spec.kv_heads or spec.heads) * spec.hidden // spec.heads
    found: list[Matrix] = []
    for layer in range(spec.layers):
        found += [(h, h, True), (h, kv, True), (h, kv, True), (h, h, True)]
        mlp = [(spec.intermediate or 4 * h, True)]
        if spec.experts and layer >= spec.dense_layers:
            width = spec.expert_intermediate or spec.intermediate or 4 * h
            mlp = [(width, n < (spec.active_experts or 0)) for n in range(spec.experts)]
            mlp += [(width, True)] * spec.shared_experts
        for width, used in mlp:
            found += [(h, width, used)] * (3 if spec.gated else 2)
    return found


@given(name=st.sampled_from(NAMES), rank=st.integers(1, 256))
def test_adapters_are_counted_matrix_by_matrix(name: str, rank: int) -> None:
    spec = model(name)
    every = matrices(spec)
    lora = Lora(rank=rank)
    assert sum(lora.parameters(spec)) == sum(rank * (m + n) for m, n, _ in every)
    used = sum(rank * (m + n) for m, n, used in every if used)
    assert sum(lora.active(spec)) == used


@given(
    name=st.sampled_from(NAMES),
    rank=st.integers(1, 256),
    t=st.sampled_from([1, 2, 4, 8]),
    d=st.sampled_from([1, 2, 4]),
)
def test_frozen_weights_have_no_gradients_and_no_optimiser_states(
    name: str, rank: int, t: int, d: int
) -> None:
    spec, costs = model(name), CostSettings(recompute="none", flash=True)
    shape = (spec, 1024, 4, d, t)
    more = sum(rank * (m + n) for m, n, _ in matrices(spec))
    full, part = marp.marp(*shape), marp.marp(*shape, rank)
    assert part.states == pytest.approx(full.states * 2 / 20 + 20 * more, abs=3)
    assert part[1:] == full[1:]
    whole, ours = (marp.cost_model(*shape, costs, r) for r in (None, rank))
    # Terms are rounded up to MiB: the layers, the adapters.
    states = whole.states * 2 / 16 + 16 * more
    assert ours.states == pytest.approx(states, abs=3 * marp.MIB)
    assert ours.activations == whole.activations


@given(
    name=st.sampled_from(NAMES),
    rank=st.integers(1, 256),
    recompute=st.sampled_from(["none", "full"]),
)
def test_a_step_on_one_gpu_is_its_passes_over_every_matrix(
    name: str, rank: int, recompute: Recompute
) -> None:
    """Frozen: a pass forward, one for the inputs' gradients; a third for adapters."""
    spec, s, batch = model(name), 512, 3
    rates = JobRates(NODES, CostSettings(recompute=recompute), "marp")
    again = recompute == "full"
    adapters = sum(rank * (m + n) for m, n, used in matrices(spec) if used)
    flops = (2 + again) * 2 * sum(spec.active_parameters)
    flops += (3 + again) * (2 * adapters + 4 * s * spec.hidden * spec.layers)
    flops += 2 * 2 * spec.vocabulary * spec.hidden
    gpu = NODES.gpus["A100-40G"]
    want = flops * batch * s / (gpu.peak_tflops * gpu.efficiency)
    trained = Trained(name, spec, s, batch, rank)
    assert rates.step_us(trained, 1, 1, {"node0": 1}) == pytest.approx(
        want / 1e6, abs=1.001
    )


def test_only_adapters_gradients_travel() -> None:
    """Two bytes a parameter, twice half of them, at 1 MB/s: as many us as bytes."""
    slow = catalogue.cluster([("A100-40G", 1)] * 2, 0.001)
    spec = model("llama-3-8b")
    rates = JobRates(slow, CostSettings(recompute="none"), "marp")
    held = {"node0": 1, "node1": 1}
    trained = Trained("x", spec, 512, 2, 16)
    one = Trained("x", spec, 512, 1, 16)
    exposed = rates.step_us(trained, 2, 1, held) - rates.step_us(
        one, 1, 1, {"node0": 1}
    )
    assert exposed == pytest.approx(2 * sum(Lora(rank=16).parameters(spec)), abs=2)


def test_queues_of_lora_jobs_are_judged_and_bounded() -> None:
    spec = model("llama-3-8b")
    kinds = {
        "lora": JobModel(spec=spec, sequence_length=1024, lora_rank=16),
        "full": JobModel(spec=spec, sequence_length=1024),
    }
    jobs = tuple(
        Job(name=f"j{i}", model=kind, batch=4, samples=400, submit_s=i * 50.0, gpus=2)
        for i, kind in enumerate(["lora", "full", "lora", "lora"])
    )
    costs = CostSettings(recompute="selective", flash=True, sync_overlap="backward")
    assumed = Assumptions(memory="cost_model", costs=costs)
    data = Data(name="q", cluster=NODES, models=kinds, jobs=jobs, assumptions=assumed)
    fewest = {
        kind: min(o.gpus for o in data.rates.options(data.trained(job)))
        for kind, job in (("lora", jobs[0]), ("full", jobs[1]))
    }
    assert fewest["lora"] < fewest["full"]
    for policy in ("frenzy", "opportunistic", "sia"):
        schedule = simulator.simulate(data, policy).schedule
        found = job_scheduling.evaluate(data, schedule)
        assert not found.violations
        assert bounds.bound(data)[0].value <= found.objective
