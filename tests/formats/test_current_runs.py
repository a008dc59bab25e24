"""A run that goes on is read as a plan, by the arguments of its trainer."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from disk import put
from exporter_plans import MEGATRON_RUN, instance
from exporter_plans import one as pipelined
from mixtures import mixture

from hetopt import formats
from hetopt.costs import under
from hetopt.errors import InstanceError
from hetopt.formats import exporting
from hetopt.formats.importing import changes
from hetopt.formats.importing.forms import Form
from hetopt.formats.importing.placing import Claim
from hetopt.formats.megatron import plan as megatron
from hetopt.formats.megatron.arguments import arguments as arguments_of
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.training_plan.shapes import normal, table_of
from hetopt.schema import Alternatives, Instance, Split
from hetopt.schema.groups import FIELDS


def settings(target: str) -> Instance:
    """torchtitan's replicas are FSDP's: ZeRO 2 where weights are kept."""
    return instance(costs={"zero": 2} if target == "torchtitan" else {})


def claimed(target: str, file: Path, data: Instance, hosts: str = "") -> Claim:
    importer: Any = formats.importer(f"{target}-plan")
    (claim,) = importer.claims(file, data, hosts)
    return claim


def read(target: str, file: Path, data: Instance, hosts: str = "") -> TrainingPlan:
    plan = claimed(target, file, data, hosts).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("target", "file"), [("megatron", "arguments.txt"), ("torchtitan", "plan.toml")]
)
def test_groups_that_divide_states_are_read_back(
    target: str, file: str, tmp_path: Path
) -> None:
    zero = {"megatron": 1, "torchtitan": 2}[target]
    data = instance(costs={"zero": zero, "zero_groups": 2})
    plan = pipelined([(4, 2, 4)] * 3)
    exporting.write(tmp_path, exporting.export_plan(target, data, plan))
    assert read(target, tmp_path / file, data).zero_groups is None
    offered = Alternatives(zero_groups=(2,))
    other = data.with_costs(zero_groups=1).with_workload(alternatives=offered)
    assert read(target, tmp_path / file, other).zero_groups == 2


@pytest.mark.parametrize("split", [Split(*x) for x in product((1, 2), repeat=3)])
def test_what_divides_sequences_experts_and_runs_is_read_back(
    split: Split, tmp_path: Path
) -> None:
    data = mixture([4, 4])
    flows = [
        Pipeline(
            micro_batches=2,
            stages=tuple(
                Stage(
                    layers=(2 * j, 2 * j + 2),
                    replicas=(Replica(gpus=(f"n{j}:{i}", f"n{j}:{i + 1}")),),
                )
                for j in (0, 1)
            ),
        )
        for i in (0, 2)
    ]
    told = {n: v for n, v in zip(FIELDS, split, strict=True) if v > 1}
    chosen = TrainingPlan(pipelines=tuple(flows), **told)
    exporting.write(tmp_path, exporting.export_plan("megatron", data, chosen))
    found = read("megatron", tmp_path / "arguments.txt", data)
    assert found == chosen
    own = under(data, split=split)
    found = read("megatron", tmp_path / "arguments.txt", own)
    assert all(getattr(found, name) is None for name in FIELDS)


def arguments(tmp_path: Path, *changes: str) -> Path:
    words = dashed(MEGATRON_RUN | {"global_batch_size": 32})
    for change in changes:
        name, _, value = change.partition(" ")
        words[name] = value
    text = "torchrun pretrain_gpt.py \\\n  # a comment\n"
    text += " \\\n".join(f"  {name} {value}" for name, value in words.items())
    return put(tmp_path / "args.txt", text)


RUN = MEGATRON_RUN | {"global_batch_size": 32, "use_distributed_optimizer": True}


def dump(run: dict[str, Any]) -> str:
    """What Megatron prints of its arguments, by its own rule."""
    rest = {"fp16": False, "num_experts": None, "recompute_modules": ["core_attn"]}
    lines = [
        "  {} {} {}".format(name, "." * (48 - len(name)), value)
        for name, value in sorted((run | rest).items())
    ]
    return "\n".join(lines) + "\n"


def titled(run: dict[str, Any]) -> str:
    """The same within a log, once before a restart with other arguments."""
    rule = "-" * 24
    parts = [
        f"{rule} arguments {rule}\n{dump(one)}{rule[:20]} end of arguments {rule}-\n"
        for one in (run | {"micro_batch_size": 1}, run)
    ]
    return f"building GPT model ...\n{parts[0]}it's restarted\n{parts[1]}"


FORMS = {
    "dump": ("txt", dump),
    "log": ("log", titled),
    "tests": (
        "yaml",
        lambda run: json.dumps({"ENV": {"A": 1}, "MODEL_ARGS": dashed(run)}),
    ),
}


def dashed(run: dict[str, Any]) -> dict[str, Any]:
    return {f"--{name.replace('_', '-')}": value for name, value in run.items()}


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_the_same_in_whichever_form_it_is_kept(
    form: str, tmp_path: Path
) -> None:
    suffix, write = FORMS[form]
    path = put(tmp_path / f"run.{suffix}", write(RUN))
    data = instance(costs={"zero": 1})
    assert read("megatron", path, data) == read(
        "megatron", arguments(tmp_path, "--use-distributed-optimizer"), data
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "--num-layers 12 $EXTRA",
            "found '$EXTRA', which may contain further arguments",
        ),
        ("--micro-batch-size $MBS", "micro-batch-size: found '$MBS', expected a whole"),
        ("$FLAG--x", "found no argument, expected some as --num-layers"),
        ("--$FLAG 1", "found '$FLAG', which may contain further"),
        (
            "\nif [ -f x ]; then\n  torchrun a.py --num-layers 4\nfi",
            "line 3: found a run in a function, or under a condition that is not",
        ),
        (
            "--num-layers 4\ntorchrun b.py --num-layers 8",
            "lines 1, 2: found 2 runs, expected one",
        ),
    ],
)
def test_what_a_script_leaves_open_is_refused_by_name(
    text: str, message: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "run.sh", f"torchrun pretrain_gpt.py {text}\n")
    with pytest.raises(InstanceError) as caught:
        read("megatron", path, instance())
    assert message in str(caught.value)
    assert "paste the expanded command" in str(caught.value)


@pytest.mark.parametrize("layout", [None, "Et*4|t*4|t*4mL", "E(tttt|)*2t*4,mL"])
def test_layers_that_predict_further_tokens_are_the_last(
    layout: str | None, tmp_path: Path
) -> None:
    """Megatron counts them apart, an instance among its layers."""
    words = [] if layout is None else [f"--pipeline-model-parallel-layout {layout}"]
    path = arguments(tmp_path, "--num-layers 12", "--mtp-num-layers 1", *words)
    data = instance(layers=13, mtp_layers=1)
    found = read("megatron", path, data)
    spans = [stage.layers for stage in found.pipelines[0].stages]
    assert spans == [(0, 4), (4, 8), (8, 13)]
    for other in (instance(), instance(layers=13)):
        with pytest.raises(InstanceError, match=r"mtp-num-layers: found 1|num-layers"):
            read("megatron", path, other)
    with pytest.raises(InstanceError, match="mtp-num-layers: found 0, expected 1"):
        read("megatron", arguments(tmp_path, "--num-layers 12"), data)


_SPLIT = "account-for-{}-in-pipeline-split"
_COUNTED = " --".join(["", *map(_SPLIT.format, ("embedding", "loss"))])
_MTP = [((0, 3), (9, 12)), ((3, 6), (12, 13)), ((6, 9), (13, 13))]
_TWO = [((0, 1), (5, 7)), ((1, 3), (7, 9)), ((3, 5), (9, 10))]


@pytest.mark.parametrize(
    ("told", "layers", "runs"),
    [
        ("--pipeline-model-parallel-layout E|t*12m|L", 13, [None] * 3),
        ("--pipeline-model-parallel-layout Et*3|(t*3|)*3m|L", 13, _MTP),
        (f"--num-virtual-stages-per-pipeline-rank 2{_COUNTED}", 10, _TWO),
    ],
)
def test_ends_alone_and_unequal_runs_are_read_judged_and_written(
    told: str, layers: int, runs: list[Any], tmp_path: Path
) -> None:
    mtp = int(layers > 12)
    words = [f"--num-layers {layers - mtp}", *["--mtp-num-layers 1"] * mtp, told]
    costs = {"in_flight": "1f1b", "pipeline": "critical", "precision": "bf16_mixed"}
    data = instance(36, costs, layers=layers, mtp_layers=mtp).on("megatron")
    path = arguments(tmp_path, *words, "--global-batch-size 36")
    _, plan, _, own, notes, _ = claimed("megatron", path, data)
    assert "layout told, which the instance does not offer" in str(notes)
    stages, found = plan.pipelines[0].stages, training_plan.evaluate(own, plan)
    assert [stage.runs for stage in stages] == runs
    assert found.valid, found.violations
    assert not training_plan.evaluate(data, plan).valid
    table, last = table_of(own, plan), 0
    for stage, row in zip(stages, found.parts["stages"][0], strict=True):
        key, last = (stage.replicas[0].node, 4, 2), last + 1
        each = [table.layer_us(*key)[x] for x in stage.span]
        assert row["compute_us"] == sum(each) + table.head_us(*key) * (last == 3)
    exporting.write(tmp_path, exporting.export_plan("megatron", own, plan))
    assert read("megatron", tmp_path / "arguments.txt", own) == plan


def test_whether_norms_are_divided_is_told_where_it_differs(tmp_path: Path) -> None:
    for flag, own in (("--sequence-parallel ", False), ("--swiglu ", True)):
        data = instance(costs={"sequence_parallel": own})
        claim = claimed("megatron", arguments(tmp_path, flag), data)
        assert ("--sequence-parallel: judged" in str(claim.notes)) is True
        same = instance(costs={"sequence_parallel": not own})
        claim = claimed("megatron", arguments(tmp_path, flag), same)
        assert "--sequence-parallel: judged" not in str(claim.notes)


def test_hosts_are_taken_in_the_order_that_is_told(tmp_path: Path) -> None:
    path = arguments(tmp_path, "--pipeline-model-parallel-size 2")
    found = read("megatron", path, instance(), "b1,b0,a0")
    nodes = [
        [stage.replicas[0].node for stage in one.stages] for one in found.pipelines
    ]
    assert nodes == [["b1", "a0"], ["b0", "a0"]]


@pytest.mark.parametrize(
    ("schedule", "less", "spans"),
    [
        ("1F1B", 1, [(0, 4), (4, 9), (9, 12)]),
        ("Interleaved1F1B", 2, [(0, 9), (1, 11), (4, 12)]),  # 1, 3, 3, 2, 2, 1
    ],
)
def test_torchtitan_divides_layers_by_its_own_rule(
    schedule: str, less: int, spans: object, tmp_path: Path
) -> None:
    parallel = {
        **{"pipeline_parallel_degree": 3, "tensor_parallel_degree": 4},
        "pipeline_parallel_microbatch_size": 2,
        "pipeline_parallel_first_stage_less_layers": less,
        "pipeline_parallel_schedule": schedule,
    }
    training = {"local_batch_size": 16, "global_batch_size": 32, "seq_len": 128}
    policy = {"preserve_rng_state": True}
    made = {"parallelism": parallel, "training": training}
    path = put(tmp_path / "run.json", made | {"activation_checkpoint": policy})
    found = normal(read("torchtitan", path, settings("torchtitan")))
    (pipeline,) = found.pipelines
    assert [stage.layers for stage in pipeline.stages] == spans
    assert (pipeline.micro_batches, pipeline.micro_batch_size) == (8, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--num-layers 13", "num-layers: found 13, expected 12"),
        ("--ffn-hidden-size 1024", "ffn-hidden-size: found 1024, expected 2048"),
        ("--global-batch-size 30", "found 30, expected 32"),
        ("--tensor-model-parallel-size 5", "expected a multiple of stages"),
        (
            "--context-parallel-size 2",
            "has context_parallel 2, .* layer_times and activations 'calibrated'.* -o "
            "context_parallel=1,2",
        ),
        ("--fp16 ", "precision: found fp16_mixed, expected bf16_mixed"),
        ("--fp8-format hybrid", "products of layers: found fp8, .* -o products=fp8"),
        ("--optimizer sgd", "optimizer: found sgd, expected adamw.*-o optimiser=sgd"),
        ("--num-virtual-stages-per-pipeline-rank 5", "found 15 parts of 12 layers"),
        ("--pipeline-model-parallel-layout Et*6|t*6L", "in 2 parts, expected 12 in 3"),
        (
            "--pipeline-model-parallel-layout Et*6||t*6L",
            "whose part 1 has neither layer nor end",
        ),
        (
            "--pipeline-model-parallel-layout t*6|t*6|EL",
            "expected E, each layer as t, 0 as m, L, in this order",
        ),
        ("--multi-latent-attention ", "multi-latent-attention: found True, expected"),
        ("--hybrid-override-pattern M*M*", "layers without attention: found True"),
        ("--is-hybrid-model ", "layers without attention: found True"),
        ("--use-torch-fsdp2 ", "use-torch-fsdp2"),
    ],
)
def test_another_run_than_the_instances_is_refused(
    change: str, message: str, tmp_path: Path
) -> None:
    costs = {"precision": "bf16_mixed"} if "fp16" in change else {}
    data = instance(costs=costs, intermediate=2048)
    with pytest.raises(InstanceError, match=message):
        read("megatron", arguments(tmp_path, change), data)


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        (
            "--recompute-granularity selective --recompute-modules mlp",
            *("recompute", "mlp"),
        ),
        ("--num-layers-per-virtual-pipeline-stage 2", "interleave", 2),
        ("--use-distributed-optimizer ", "zero", 1),
    ],
)
def test_a_run_is_judged_with_its_own_settings(
    change: str, name: str, value: object, tmp_path: Path
) -> None:
    """One that the instance does not offer is offered, and said; no other is named."""
    path = arguments(tmp_path, change, "--global-batch-size 36")
    claim = claimed("megatron", path, instance(36))
    assert training_plan.evaluate(claim.data, claim.plan).valid
    assert value in getattr(claim.data.workload.alternatives, name)
    assert (
        f"judged with {name} {value}, which the instance does not offer" in claim.notes
    )
    assert not any(other in str(claim.notes) for other in {*FIELDS} - {name})
    # Judged as on an instance that has the setting for its own.
    costs = {name: value} | ({"pipeline": "critical"} if name == "interleave" else {})
    own = instance(36, costs=costs)
    same = read("megatron", path, own)
    there = training_plan.evaluate(own, same).objective
    assert training_plan.evaluate(claim.data, claim.plan).objective == there


@pytest.mark.parametrize(
    "old",
    [
        "--deepspeed --zero-stage 1 --checkpoint-activations",
        "--use-distributed-optimizer --activations-checkpoint-method uniform",
    ],
)
def test_flags_of_older_programs_say_what_todays_do(old: str, tmp_path: Path) -> None:
    today = arguments(tmp_path, "--use-distributed-optimizer ")
    data = instance()
    wanted = read("megatron", today, data)
    text = today.read_text().replace("--use-distributed-optimizer", old)
    today.write_text(text.replace("--recompute-granularity full", ""))
    assert read("megatron", today, data) == wanted


@pytest.mark.parametrize(("layers", "recompute"), [("0", "none"), ("4", "full")])
def test_a_block_without_layers_recomputes_nothing(
    layers: str, recompute: str, tmp_path: Path
) -> None:
    block = ("--recompute-method block", f"--recompute-num-layers {layers}")
    claim = claimed("megatron", arguments(tmp_path, *block), instance())
    assert claim.settings.recompute == recompute


#: What a relative of Megatron-LM is given, and the same by Megatron-LM's names.
RELATIVES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"ds_sequence_parallel_size": 4}, {"context-parallel-size": "4"}),
    ({"moe_expert_parallel_size": 8}, {"expert-model-parallel-size": "8"}),
    (
        {"num_key_value_heads": 4},
        {"num-query-groups": "4", "group-query-attention": ""},
    ),
    ({"deepspeed": True, "num_experts": 1}, {"deepspeed": ""}),
    ({"num_experts": 1}, {"num-experts": "1"}),
    ({"finetuning_type": "lora"}, {"tuner-type": "lora", "lora-rank": "8"}),
    (
        {"modules.pre_trainer.overrides.seq_length": "${LENGTH:2048}"},
        {"seq-length": "2048", "use-distributed-optimizer": "", "bf16": ""},
    ),
]


@pytest.mark.parametrize(("told", "wanted"), RELATIVES)
def test_names_of_relatives_are_those_of_megatron(
    told: dict[str, Any], wanted: dict[str, str]
) -> None:
    assert arguments_of(Form("YAML", told), "run.yaml").given == wanted


def test_states_that_deepspeed_updates_on_hosts_are_on_hosts(tmp_path: Path) -> None:
    path = arguments(tmp_path, "--deepspeed ", "--zero-stage 1", "--cpu-optimizer ")
    with pytest.raises(InstanceError, match="optimiser states: found on hosts"):
        read("megatron", path, instance())


@pytest.mark.parametrize("told", ["", "--swiglu ", "--quick-geglu "])
def test_a_run_of_a_model_without_gates_is_told(told: str, tmp_path: Path) -> None:
    words = ("--num-attention-heads 8", "--ffn-hidden-size 1024", told)
    path = arguments(tmp_path, *filter(None, words))
    data = instance(gated=True, intermediate=1024, heads=8)
    notes = [one for one in claimed("megatron", path, data).notes if "swiglu" in one]
    assert bool(notes) == (not told)


LAUNCHED = {
    "torchrun --nproc_per_node 8 p.py": "1 x 8",
    "torchrun --nproc_per_node=8 --nnodes=2 p.py": None,
    "python -m torch.distributed.launch --nproc_per_node 4 p.py": "1 x 4",
    "deepspeed --num_gpus 4 p.py": "1 x 4",
    "deepspeed --include a0:0,1@a1:0,1 p.py": "2 x 2",
    "CUDA_VISIBLE_DEVICES=0,1,2 python p.py": "1 x 3",
    "NPROC_PER_NODE=8 NNODES=3 megatron sft": "3 x 8",
    "NPROC_PER_NODE=8 NNODES=2 megatron sft": None,
    "#SBATCH --nodes=3 --gres=gpu:h100:8\nsrun python p.py": "3 x 8",
    "#SBATCH -N 2\n#SBATCH --gpus-per-node=8\nsrun python p.py": None,
    "#SBATCH -N 4\ntorchrun --nnodes $SLURM_NNODES --nproc-per-node 8 p.py": "4 x 8",
    "#SBATCH -N 4 --gpus-per-node=2\ntorchrun --nnodes $SLURM_NNODES "
    "--nproc-per-node $SLURM_GPUS_PER_NODE p.py": "4 x 2",
    "srun --nodes 2 --ntasks-per-node 4 python p.py": "2 x 4",
    "python p.py": None,
}


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_a_launcher_that_starts_other_processes_is_refused(
    launcher: str, tmp_path: Path
) -> None:
    path = arguments(tmp_path, "--pipeline-model-parallel-size 4")
    text = path.read_text().replace("  # a comment\n", "")
    path.write_text(text.replace("torchrun pretrain_gpt.py", launcher))
    found = LAUNCHED[launcher]
    if found is None:
        claim = next(megatron.claims(path, instance(), hosts="a0,a1"))
        assert claim.plan is not None
        return
    with pytest.raises(InstanceError, match=f"found {found} processes, expected 16"):
        next(megatron.claims(path, instance(), hosts="a0,a1"))


def test_paths_and_numbers_that_are_not_known_hold_no_arguments(tmp_path: Path) -> None:
    path = arguments(tmp_path)
    text = path.read_text().replace("  # a comment\n", "")
    start = "torchrun --nproc_per_node=8 --nnodes=3 --master_port=$((RANDOM + 1)) "
    start += "--rdzv_id=$RANDOM $HOME/"
    path.write_text(text.replace("torchrun ", start))
    assert len(read("megatron", path, instance()).pipelines) == 2


def test_words_and_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    path = arguments(tmp_path)
    text = path.read_text().replace("  # a comment\n", "")
    path.write_text(f'source env.sh\n{text} "$@"\n')
    _, asked = changes.recognise([path])
    told = " ".join(asked.notes)
    assert "env.sh: not read, as it is another script" in told
    assert "$@: the script is taken to be started without arguments" in told


def test_matrices_that_differ_from_the_instances_are_told(tmp_path: Path) -> None:
    data = instance()
    flags = ["--num-attention-heads 8", f"--vocab-size {data.model.vocabulary + 1}"]
    is_tied = data.model.tied_embeddings
    if is_tied:
        flags.append("--untie-embeddings-and-output-weights ")
    told = " ".join(claimed("megatron", arguments(tmp_path, *flags), data).notes)
    assert f"vocab-size {data.model.vocabulary + 1}: judged with" in told
    assert f"judged as {'one matrix' if is_tied else 'two matrices'}" in told
    for name, zero in (("no_shard", 0), ("optim", 1)):
        sharded = f"--data-parallel-sharding-strategy {name}"
        path = arguments(tmp_path, "--use-megatron-fsdp ", sharded)
        settings = claimed("megatron", path, data).settings
        assert settings.zero == zero


GRADIENTS = [
    (["--bf16"], "bf16_fp32_gradients"),
    (["--bf16", "--grad-reduce-in-bf16"], "bf16_mixed"),
    (["--fp16"], "fp16_mixed"),
]


@pytest.mark.parametrize("own", [kind for _, kind in GRADIENTS])
@pytest.mark.parametrize(("flags_", "told"), GRADIENTS)
def test_a_run_has_the_gradients_that_its_flags_say(
    flags_: list[str], told: str, own: str, tmp_path: Path
) -> None:
    """Weighed and sent so; another kind of 16 bits is another run."""
    path = arguments(tmp_path, *(f"{flag} " for flag in flags_))
    data = instance(costs={"precision": own})
    if "fp16_mixed" in {told, own} and told != own:
        with pytest.raises(InstanceError, match=f"-o precision={told}"):
            read("megatron", path, data)
        return
    claim = claimed("megatron", path, data)
    assert claim.data.workload.costs.precision == told
    said = [note for note in claim.notes if "adds up and reduces gradients" in note]
    assert len(said) == (told != own)
    assert all(told in note and own in note for note in said)


def test_a_run_of_what_the_instances_program_lacks_is_one_of_its_trainer(
    tmp_path: Path,
) -> None:
    """The executor has no groups of ZeRO; the run is Megatron's."""
    path = arguments(
        tmp_path,
        "--use-distributed-optimizer ",
        "--num-distributed-optimizer-instances 2",
        "--tensor-model-parallel-size 2",
    )
    claim = claimed("megatron", path, instance(costs={"zero": 1}).on("executor"))
    assert claim.data.workload.runs_on == "megatron"
    assert (
        "checked against the limits of megatron: executor cannot run it" in claim.notes
    )
    assert training_plan.evaluate(claim.data, claim.plan).valid


def test_the_command_says_how_far_the_run_is_from_the_best(tmp_path: Path) -> None:
    path = arguments(tmp_path)
    file = put(tmp_path / "hosts.json", instance().model_dump_json())
    words = ["check", "--from", str(path), "--instance", str(file)]
    shown = typed(*words)
    assert "more than the best plan" in shown.stdout.replace("\n", " ")
    assert typed("check").exit_code == 2
    out = tmp_path / "plan.json"
    made = typed("import", "megatron-plan", path, "--instance", file, "--out", out)
    assert made.exit_code == 0, made.output
    assert typed("check", out).exit_code == 0
