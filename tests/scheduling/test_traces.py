"""Traces whose jobs name their models: against queues that are written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from assembled import assembled
from command_line import document, said
from disk import put

from hetopt import problems
from hetopt.api import scheduling
from hetopt.catalogue import model as model_fields
from hetopt.errors import InstanceError
from hetopt.files import load_instance
from hetopt.problems.job_scheduling import Assumptions, Data, Job, JobModel
from hetopt.scheduling import catalogue, simulator, traces
from hetopt.schema import ModelSpec

CLUSTER = catalogue.cluster([("A100-80G", 4), ("RTX2080Ti", 4)], 5.0)
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}  # llama-3.2-1b
COLUMNS = "job,submit_s,gpus,model,training,lora_rank,batch,sequence_length"
OURS = f"""{COLUMNS},samples,steps,tokens
one,10,2,ours/config.json,full,,8,512,800,,
two,10.5,choose,ours/config.json,lora,8,8,512,,50,
three,12,1,gpt2,full,,4,1024,,,409600
four,15,4,ours/config.json,lora,32,2,1024,,,1000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def written(folder: Path, text: str) -> Path:
    return put(folder / "jobs.csv", text)


def spec(name: str) -> ModelSpec:
    return ModelSpec.model_validate(model_fields(name))


def by_hand() -> Data:
    ours, gpt2 = spec("llama-3.2-1b"), spec("gpt2")
    return Data(
        name="by hand",
        cluster=CLUSTER,
        models={
            "a": JobModel(spec=ours, sequence_length=512),
            "b": JobModel(spec=ours, sequence_length=512, lora_rank=8),
            "c": JobModel(spec=gpt2, sequence_length=1024),
            "d": JobModel(spec=ours, sequence_length=1024, lora_rank=32),
        },
        jobs=(
            Job(name="one", model="a", batch=8, samples=800, submit_s=0, gpus=2),
            Job(
                name="two", model="b", batch=8, samples=400, submit_s=0.5, gpus="choose"
            ),
            Job(name="three", model="c", batch=4, samples=400, submit_s=2, gpus=1),
            Job(name="four", model="d", batch=2, samples=1, submit_s=5, gpus=4),
        ),
        assumptions=Assumptions(memory="cost_model"),
    )


def test_a_trace_that_says_everything_is_the_queue_by_hand(folder: Path) -> None:
    data, hand = traces.queue(written(folder, OURS), CLUSTER, "t"), by_hand()
    same = ("name", "batch", "samples", "submit_s", "gpus")
    for one, two in zip(data.jobs, hand.jobs, strict=True):
        assert [getattr(one, f) for f in same] == [getattr(two, f) for f in same]
        mine, want = data.models[one.model], hand.models[two.model]
        assert mine.spec.parameters == want.spec.parameters
    assert set(data.models) == {"ours", "ours, LoRA 8", "gpt2", "ours, LoRA 32"}
    assert [one.what for one in data.assumed] == ["memory and times"]
    for policy in ("frenzy", "opportunistic", "sia_as_asked"):
        schedules = [simulator.simulate(d, policy).schedule for d in (data, hand)]
        assert schedules[0] == schedules[1]


def test_sequence_lengths_tell_models_apart(folder: Path) -> None:
    rows = "0,1,gpt2,full,4,1024,10\n1,1,gpt2,full,4,512,10\n2,1,gpt2,full,4,512,10\n"
    head = "submit_s,gpus,model,training,batch,sequence_length,samples\n"
    data = traces.queue(written(folder, head + rows), CLUSTER, "t")
    lengths = [data.models[job.model].sequence_length for job in data.jobs]
    assert lengths == [1024, 512, 512]
    assert data.jobs[1].model == data.jobs[2].model != data.jobs[0].model


def test_an_instances_costs_hold_for_jobs_that_name_models(folder: Path) -> None:
    place = "hexiscale/setting-1-llama2-7b"
    named = scheduling.queue_of_trace(written(folder, OURS), place)
    assert named.assumptions.memory == "cost_model"
    assert named.assumptions.costs == load_instance(place).workload.costs
    plain = written(folder, "submit_s,duration_s,gpus\n0,600,1\n")
    assert scheduling.queue_of_trace(plain, place).assumptions == Assumptions()


# --- what is assumed -------------------------------------------------------------


def assumed(data: Data) -> dict[str, tuple[str, int]]:
    return {one.what: (one.value, one.jobs) for one in data.assumed}


def test_no_job_becomes_gpt2_or_bert_unsaid(folder: Path) -> None:
    path = written(folder, "submit_s,duration_s,gpus\n0,600,1\n5,7200,2\n9,600,1\n")
    found = assumed(traces.queue(path, CLUSTER, "t"))
    assert found["model"] == ("GPT-2 or BERT by GPU-hours: 2 × bert-base, 1 × gpt2", 3)
    text = "submit_s,gpus,model,batch\n0,1,imagenet,8\n"
    found = assumed(traces.queue(written(folder, text), CLUSTER, "t"))
    assert {"model", "GPU-hours"} <= set(found)


# --- who chooses the number of GPUs ----------------------------------------------


def asking(data: Data, gpus: Any) -> Data:
    jobs = tuple(job.model_copy(update={"gpus": gpus}) for job in data.jobs)
    return data.model_copy(update={"jobs": jobs})


@pytest.mark.parametrize(
    ("policy", "like", "gpus"),
    [("sia_as_asked", "sia", "choose"), ("opportunistic", "opportunistic", 1)],
)
def test_where_nobody_asks_a_policy_does_as(policy: str, like: str, gpus: Any) -> None:
    free = simulator.simulate(asking(by_hand(), "choose"), policy).schedule
    assert free == simulator.simulate(asking(by_hand(), gpus), like).schedule


@pytest.mark.parametrize("empty", ["", "0", "0.0"])
def test_jobs_without_gpus_are_left_out_counted_and_told(
    folder: Path, empty: str
) -> None:
    rows = f"a,0,8.0,600\nb,60,{empty},600\nc,70,{empty},\n"
    data = traces.queue(
        written(folder, f"job,submit_s,gpus,duration_s\n{rows}"), CLUSTER, "t"
    )
    assert [job.name for job in data.jobs] == ["a"]
    assert assumed(data)["no GPUs"] == ("left out", 2)
    alone = written(folder, f"job,submit_s,gpus,duration_s\nb,60,{empty},600\n")
    with pytest.raises(InstanceError, match="found no jobs but 1 without GPUs"):
        traces.queue(alone, CLUSTER, "t")


# --- what is refused -------------------------------------------------------------

HEAD = f"{COLUMNS},duration_s,tokens"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,0,1,llama3-8b,,,,,60,", "did you mean llama-3-8b"),
        ("x,0,1,gpt2,qlora,,,,60,", 'training: found "qlora", expected full or lora'),
        ("x,0,1,gpt2,full,8,,,60,", "lora_rank: found a rank"),
        ("x,0,8.5,gpt2,,,,,60,", "gpus: found"),
        ("x,0,choose,gpt2,,,,,60,", "gpus: found choose, expected a number with"),
        ("x,0,some,gpt2,,,,,60,", "expected a whole number from 1 to 100000, or choo"),
        ("x,0,1,gpt2,,,,,60,9", "found duration_s and tokens"),
        ("x,0,1,gpt2,,,,,,", "found nothing, expected one of duration_s"),
        ("x,0,1,,,,,,,9", "found tokens of no model"),
        ("x,0,1,,lora,,,,60,", "found training of no model"),
        ("x,0,1,gpt2,,,0,,60,", "batch: found"),
        ("x,0,1,gpt2,,,,1k,60,", "sequence_length: found"),
        ("x,0,1,../config.json,,,,,60,", "leads out of the trace's folder"),
        ("x,0,1,/etc/config.json,,,,,60,", "leads out of the trace's folder"),
        ("x,0,1,out/config.json,,,,,60,", "leads out of the trace's folder"),
        ("x,0,1,no/config.json,,,,,60,", "line 2: model: "),
        ("x,0,1,bad.json,,,,,60,", "missing key, expected one of num_hidden_layers"),
        ("x,0,1,latent.json,lora,,,,60,", "found layers of model"),
    ],
)
def test_a_wrong_cell_is_refused_with_its_line(
    folder: Path, row: str, message: str
) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (inner / "out").symlink_to(folder / "ours")
    (inner / "bad.json").write_text("{}")
    latent = {"kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    tree = {**CONFIG, **latent, "v_head_dim": 64}
    (inner / "latent.json").write_text(json.dumps(tree))
    path = written(inner, f"{HEAD}\n{row}\n")
    with pytest.raises(InstanceError) as caught:
        traces.queue(path, CLUSTER, "t")
    assert str(caught.value).startswith(f"{path}: line 2")
    assert message in str(caught.value)
    assert caught.value.file == str(path)


# --- the command -----------------------------------------------------------------


def told(*words: Any) -> tuple[int, str, str]:
    return said("schedule", *words)


def test_schedule_tells_in_words_what_it_assumes(folder: Path) -> None:
    path = written(folder, "submit_s,duration_s,gpus\n0,600,1\n5,7200,2\n")
    words = ("frenzy/testbed-30", "--trace", path, "--policy", "frenzy")
    assert "GPT-2 or BERT by GPU-hours" in told(*words)[1]


def test_what_schedule_writes_of_a_trace_is_accepted_by_check(folder: Path) -> None:
    path, out = written(folder, OURS), folder / "plan.json"
    words = ("frenzy/testbed-30", "--trace", path, "--policy", "sia_as_asked")
    code, said, _ = told(*words, "--json", "--out", out)
    assert code == 0
    assert document("check", out)["objective"] == json.loads(said)["objective"]


# --- clusters that `assemble` makes ----------------------------------------------


@pytest.mark.parametrize("times", ["calibrated", "analytic"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3-8b", []),
        ("mixtral-8x7b", ["expert_parallel=8"]),
        ("llama-3-8b", ["context_parallel=2", "interleave=4"]),
        ("llama-3-8b", ["zero=3,1", "zero_groups=1,2"]),
        ("llama-3-8b", ["recompute=none", "optimiser=adafactor"]),
        ("llama-3-8b", ["finetune=lora", "rank=8"]),
        ("llama-3-8b", ["finetune=qlora", "flash=false"]),
        ("llama-3-8b", ["offload=optimiser", "host_gbytes_per_s=20"]),
        ("llama-3-8b", ["products=fp8", "framework=torchtitan"]),
        ("llama-3-8b", ["precision=fp32"]),
    ],
)
def test_jobs_that_name_models_are_scheduled_on_whatever_is_assembled(
    folder: Path, model: str, options: list[str], times: str
) -> None:
    hosts = ["a slots=8 type=H100-80GB-SXM5"]
    work = {"sequence_length": 1024, "global_batch": 8}
    own = {"context_parallel", "expert_parallel", "interleave", "products", "framework"}
    if times == "analytic":
        options = [told for told in options if told.split("=")[0] not in own]
    told = ["inter_gbytes_per_s=25", *options]
    made = assembled(folder, hosts, *told, work=work, model=model, times=times)
    place = put(folder / "cluster.yaml", made.document)
    data = scheduling.queue_of_trace(written(folder, OURS), place)
    schedule = simulator.simulate(data, "sia").schedule
    assert problems.get("job_scheduling").evaluate(data, schedule).valid
