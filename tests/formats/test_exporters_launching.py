"""What exporters wrote is started, by programs and libraries that tell what they got.

Nothing here is installed: `ssh`, `srun`, `sky`, `kubectl` and the Python libraries are
stand-ins that write down how they were called.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import ran
from exporter_plans import MIXED, UNEVEN, instance, instance_for, pipeline
from fake_ray import RAY, written

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

TELLS = """\
#!/usr/bin/env python3
import json, os, sys
with open(os.environ["TOLD"], "a") as file:
    keys = ("MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ARGS")
    told = {key: os.environ[key] for key in keys if key in os.environ}
    print(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], told]), file=file)
"""
SSH = """\
#!/bin/sh
while [ "$1" = -ntt ] || [ "$1" = -- ]; do shift; done
shift
exec bash -c "$*"
"""
ARGS = "--steps 7 --data 'tok*.bin'"
SCONTROL = '#!/bin/sh\nfor host in $3; do echo "$host"; done\n'


STANDING_IN = ("srun", "kubectl", "torchrun", "mine")
GRANTED = {
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n7 n8",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "m3",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "8(x2)",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "4",
    "IMAGE": "me/train:1",
}


def launched(
    place: Path, target: str, files: dict[str, str], *words: str, **env: str
) -> tuple[Any, list[Any]]:
    """How what starts an export ended, and the calls that it made."""
    exporting.write(place / "a folder", files)
    written(place / "lib", RAY)
    kubectl = TELLS + (
        "with open(os.environ['TOLD'] + '.yaml', 'w') as file:\n"
        "    file.write('' if sys.argv[1] == 'create' else sys.stdin.read())\n"
    )
    sky = TELLS + '\nif sys.argv[1] == "status": print("10.0.0.1")\n'
    own = {"kubectl": kubectl, "sky": sky, "scontrol": SCONTROL, "ssh": SSH}
    written(place / "bin", dict.fromkeys(STANDING_IN, TELLS) | own)
    for program in (place / "bin").iterdir():
        program.chmod(0o755)
    script = {"ray": "launch.py", "slurm": "job.sbatch"}.get(target, "launch.sh")
    ended = ran(
        *(sys.executable if target == "ray" else "bash", script, *words),
        cwd=place / "a folder",
        env={
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(place / "lib"),
            "TOLD": str(place / "told"),
            **GRANTED,
            **env,
        },
    )
    told = place / "told"
    calls = told.read_text().splitlines() if told.exists() else []
    return ended, [json.loads(call) for call in calls]


def started(
    place: Path, target: str, plan: TrainingPlan, *words: str, **env: str
) -> list[Any]:
    """The calls that what starts an export of a plan made."""
    files = exporting.export_plan(target, instance_for(target), plan)
    ended, calls = launched(place, target, files, *words, **env)
    assert ended.returncode == 0, ended.stderr
    return calls


# --- Schedulers --------------------------------------------------------------------


def test_slurm_s_nodes_keep_their_names_where_the_plan_has_them(tmp_path: Path) -> None:
    calls = started(
        tmp_path,
        "slurm",
        UNEVEN,
        SLURM_JOB_NODELIST_HET_GROUP_0="a1 a0",
        SLURM_JOB_NODELIST_HET_GROUP_1="b0 c1",
        ARGS=ARGS,
        SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0="128,8(x2),16",
        SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1="4(x2)",
    )
    processors = {words[-1]: words[4] for _, words, _ in calls}
    assert processors == {
        **dict.fromkeys(("a0", "a1"), "--cpus-per-task=8"),
        **dict.fromkeys(("b0", "b1"), "--cpus-per-task=4"),
    }
    rows = {words[-1]: words[3] for _, words, _ in calls}
    assert rows == {
        **{"a0": "--nodelist=a0", "a1": "--nodelist=a1"},
        # One of them is not the plan's: then all are what comes in order.
        **{"b0": "--nodelist=b0", "b1": "--nodelist=c1"},
    }
    assert {told["MASTER_ADDR"] for *_, told in calls} == {"a0"}


def test_skypilot_launches_the_others_with_the_address_of_the_first(
    tmp_path: Path,
) -> None:
    calls = started(tmp_path, "skypilot", MIXED, "--retry", ARGS=ARGS)
    given = ["--env", "TRAIN=./train.sh", "--env", f"ARGS={ARGS}"]
    assert [words for _, words, _ in calls] == [
        [
            *("launch", "--yes", "--detach-run", "-c", "hetopt-big-8"),
            *(*given, "big-8.yaml", "--retry"),
        ],
        ["status", "--ip", "hetopt-big-8"],
        [
            *("launch", "--yes", "--detach-run", "-c", "hetopt-small-4"),
            *(*given, "--env", "HEAD=10.0.0.1", "small-4.yaml", "--retry"),
        ],
    ]


def test_ray_places_a_bundle_on_every_node_and_trains_there(tmp_path: Path) -> None:
    calls = started(tmp_path, "ray", MIXED, TRAIN="mine")
    (group,) = (call for call in calls if call[0] == "group")
    assert group[1] == [{"GPU": 8}, {"GPU": 8}, {"GPU": 4}]
    assert group[2] == {
        "strategy": "STRICT_SPREAD",
        "bundle_label_selector": [
            {"gpu-type": "big"},
            {"gpu-type": "big"},
            {"gpu-type": "small"},
        ],
    }
    placed = [call[1:] for call in calls if call[0] == "on"]
    assert placed == [[0, 0], [0, 8], [1, 8], [2, 4]]
    trained = [call for call in calls if call[0] == "mine"]
    assert [words for _, words, _ in trained] == [
        ["plan.json", node] for node in ("a0", "a1", "b0")
    ]
    assert {told["MASTER_ADDR"] for *_, told in trained} == {"10.0.0.1"}


# --- the executor --------------------------------------------------------------------


def test_the_executor_is_started_on_every_host_with_its_gpus(tmp_path: Path) -> None:
    words = ("--steps", "7", "--data", "tok*.bin")
    calls = started(tmp_path, "torchrun", MIXED, *words)
    rows = {}
    for _, words, told in calls:
        assert told["MASTER_ADDR"] == "a0"
        options = dict(zip(words[:10:2], words[1:10:2], strict=True))
        count = len(told["CUDA_VISIBLE_DEVICES"].split(","))
        assert options["--nproc-per-node"] == str(count)
        rows[options["--node-rank"]] = count
        place = words.index("-m")
        assert words[place:] == [
            *("-m", "hetopt", "run", "plan.json"),
            *("--steps", "7", "--data", "tok*.bin"),
        ]
    assert rows == {"0": 8, "1": 8, "2": 4}


def test_a_scheduler_s_node_that_is_not_the_plan_s_is_refused(tmp_path: Path) -> None:
    ended = trained(tmp_path, "b7", {})
    assert ended.returncode == 2
    assert "b7 is no node of the plan" in ended.stderr


# --- the GPUs that a scheduler granted --------------------------------------------

PARTS = TrainingPlan(
    pipelines=(pipeline(["a0:2", "a0:3", "b0:1"], [(6, 2, 1), (6, 1, 1)], 32, 1),)
)
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
SHOWS = "#!/bin/sh\nexec env\n"


def trained(place: Path, node: str, granted: dict[str, str]) -> Any:
    """What `train.sh` starts on a node; what a scheduler tells there is `granted`."""
    files = exporting.export_plan("torchrun", instance(), PARTS)
    exporting.write(place / "run", files)
    (place / "torchrun").write_text(SHOWS)
    (place / "torchrun").chmod(0o755)
    env = {"PATH": f"{place}:{os.environ['PATH']}", "MASTER_ADDR": "a0", "ARGS": ARGS}
    words = ("./train.sh", "plan.json", node)
    return ran(*words, cwd=place / "run", env=env | granted)


def cuda(gpus: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": gpus}


@pytest.mark.parametrize(
    ("granted", "visible"),
    [
        ({}, cuda("2,3")),
        (cuda("0,1"), cuda("0,1")),
        (cuda("5,1,7"), cuda("5,1")),
        (cuda("GPU-a,MIG-b,GPU-c"), cuda("GPU-a,MIG-b")),
        (cuda("0,1") | {"SLURM_STEP_GPUS": "4,6"}, cuda("0,1")),
        ({"SLURM_STEP_GPUS": "4,6,7", "SLURM_JOB_GPUS": "0,4,6,7"}, cuda("4,6")),
        ({"SLURM_JOB_GPUS": "4,6"}, cuda("4,6")),
        ({"ROCR_VISIBLE_DEVICES": "3,1,0"}, {"ROCR_VISIBLE_DEVICES": "3,1"}),
        # What has no others counts its own from 0.
        ({"SLURM_JOB_ID": "7"}, {}),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}),
        ({"SKYPILOT_NODE_RANK": "0"}, {}),
    ],
)
def test_training_takes_the_first_gpus_that_were_granted(
    granted: dict[str, str], visible: dict[str, str], tmp_path: Path
) -> None:
    ended = trained(tmp_path, "a0", granted)
    assert ended.returncode == 0, ended.stderr
    told = dict(line.split("=", 1) for line in ended.stdout.splitlines())
    assert {name: told[name] for name in VISIBLE if name in told} == visible


@pytest.mark.parametrize("gpus", ["1", ""])
def test_a_grant_of_too_few_gpus_is_refused(gpus: str, tmp_path: Path) -> None:
    ended = trained(tmp_path, "a0", cuda(gpus))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "expected 2 GPUs for a0" in ended.stderr


def test_parts_of_a_machine_are_no_hosts_but_grants_of_slurm() -> None:
    """Its GPUs are numbered over all types, which a part does not know."""
    tree = instance().model_dump(mode="json")
    for node in tree["cluster"]["nodes"]:
        node["machine"] = {"a0": "box", "b0": "box"}.get(node["name"])
    data = Instance.model_validate(tree, strict=False)
    alone = TrainingPlan(pipelines=(pipeline(["a0:0"], [(12, 1, 1)], 32, 1),))
    for target in exporting.names():
        found = exporting.reasons(target, data, alone)
        told = [reason for reason in found if reason.startswith("machine 'box'")]
        assert len(told) == (target != "slurm"), target
    (reason,) = exporting.reasons("slurm", data, PARTS)
    assert reason.startswith("'a0' and 'b0' are of machine 'box'")


# --- the words of `hetopt run` ----------------------------------------------------

SCHEDULERS = ["jobset", "kueue", "ray", "skypilot", "slurm"]


@pytest.mark.parametrize(
    ("target", "words", "lacks"),
    [
        *((target, None, "--steps") for target in SCHEDULERS),
        ("torchrun", "", "--steps"),
        ("torchrun", "--data synthetic", "--steps"),
        ("torchrun", "--steps 7", "--data"),
        ("torchrun", "--steps-x 7 --data-x y", "--steps"),
    ],
)
def test_a_launch_without_steps_or_data_is_refused(
    target: str, words: str | None, lacks: str, tmp_path: Path
) -> None:
    files = exporting.export_plan(target, instance(), MIXED)
    env = {} if words is None else {"ARGS": words}
    ended, calls = launched(tmp_path, target, files, **env)
    assert (ended.returncode, calls) == (2, []), ended.stderr
    assert f"found no {lacks} in ARGS" in ended.stderr
    assert "ARGS='--steps 1000 --data tokens.bin'" in ended.stderr


def pods(applied: str) -> list[dict[str, str]]:
    """The environments of the containers of a JobSet."""
    spec = yaml.safe_load(applied)["spec"]
    specs = [job["template"]["spec"] for job in spec["replicatedJobs"]]
    return [
        {one["name"]: one["value"] for one in container["env"]}
        for one in specs
        for container in one["template"]["spec"]["containers"]
    ]


@pytest.mark.parametrize("target", SCHEDULERS)
def test_the_words_of_a_run_reach_every_node(target: str, tmp_path: Path) -> None:
    words = "--steps=7 --data 'tok*.bin'"
    files = exporting.export_plan(target, instance(), MIXED)
    assert (
        files["train.sh"]
        == exporting.export_plan("torchrun", instance(), MIXED)["train.sh"]
    )
    if target == "ray":  # as it runs on the driver, it must not have to be there
        files["train.sh"] = '#!/bin/sh\n[ $# = 0 ] || exec mine "$@"\n'
    ended, calls = launched(tmp_path, target, files, ARGS=words)
    assert ended.returncode == 0, ended.stderr
    if target == "skypilot":
        launches = [row[1] for row in calls if row[1][0] == "launch"]
        assert all(f"ARGS={words}" in row for row in launches)
        assert len(launches) == 2
        task = yaml.safe_load(files["big-8.yaml"])
        assert {"ARGS", "TRAIN"} <= set(task["envs"])
    elif target in ("slurm", "ray"):
        program = {"slurm": "srun", "ray": "mine"}[target]
        told = [row[2]["ARGS"] for row in calls if row[0] == program]
        assert told == [words] * 3
    else:
        envs = pods((tmp_path / "told.yaml").read_text())
        assert [(env["ARGS"], env["TRAIN"]) for env in envs] == [
            (words, "/plan/train.sh")
        ] * 2
        created = next(row[1] for row in calls if row[1][0] == "create")
        files = {word for word in created if word.startswith("--from-file=")}
        assert files == {"--from-file=plan.json", "--from-file=train.sh"}


@pytest.mark.parametrize("target", SCHEDULERS)
@pytest.mark.parametrize("when", ["exported", "started"])
def test_a_program_of_the_user_s_own_needs_no_words(
    target: str, when: str, tmp_path: Path
) -> None:
    options = ["train=mine"] if when == "exported" else []
    files = exporting.export_plan(target, instance(), MIXED, options)
    assert ("train.sh" in files) == (when == "started")
    env = {} if when == "exported" else {"TRAIN": "mine"}
    ended, calls = launched(tmp_path, target, files, **env)
    assert ended.returncode == 0, ended.stderr
    if target in ("jobset", "kueue"):
        envs = pods((tmp_path / "told.yaml").read_text())
        assert [env["TRAIN"] for env in envs] == ["mine"] * 2
    else:
        assert sum("mine" in str(call) for call in calls) == (
            2 if target == "skypilot" else 3
        )


@pytest.mark.parametrize("target", SCHEDULERS)
def test_a_plan_beyond_the_executor_wants_a_program(
    target: str, tmp_path: Path
) -> None:
    data = instance(costs={"zero": 3})
    assert exporting.reasons("torchrun", data, MIXED)
    files = exporting.export_plan(target, data, MIXED)
    assert "train.sh" not in files
    ended, calls = launched(tmp_path / "without", target, files, ARGS=ARGS)
    assert ended.returncode != 0
    assert calls == []
    assert "name your program that trains by plan.json" in ended.stderr
    ended, calls = launched(tmp_path / "with", target, files, TRAIN="mine")
    assert (ended.returncode, bool(calls)) == (0, True), ended.stderr


# --- Python that DeepSpeed and torchtitan import -------------------------------------

DEEPSPEED = {
    "deepspeed/__init__.py": "",
    "deepspeed/pipe.py": """\
class PipelineModule:
    def __init__(self, layers, topology, **options):
        self._topo, self.options = topology, options
        self._layer_specs = list(layers)
        self.bounds = []
        for self.global_rank in range(topology.world):
            self._partition_layers()
    def _set_bounds(self, start=None, stop=None):
        self.bounds.append((start, stop))
""",
    "deepspeed/runtime/__init__.py": "",
    "deepspeed/runtime/pipe/__init__.py": "",
    "deepspeed/runtime/pipe/topology.py": """\
from types import SimpleNamespace
class PipeModelDataParallelTopology:
    def __init__(self, num_pp, num_mp, num_dp):
        self.world, self.inner = num_pp * num_mp * num_dp, num_mp * num_dp
    def get_coord(self, rank):
        return SimpleNamespace(pipe=rank // self.inner)
""",
}


def read_by(folder: Path, library: dict[str, str], code: str, **env: str) -> Any:
    """What a script tells as JSON, or why it ended, with a library of these files."""
    written(folder / "library", library)
    env = {**os.environ, "PYTHONPATH": f"{folder / 'library'}:{folder}", **env}
    told = ran(sys.executable, "-c", code, cwd=folder, env=env)
    return json.loads(told.stdout) if told.returncode == 0 else told.stderr


def test_deepspeed_builds_the_layers_that_the_plan_says(tmp_path: Path) -> None:
    exporting.write(tmp_path, exporting.export_plan("deepspeed", instance(), UNEVEN))
    found = read_by(
        tmp_path,
        DEEPSPEED,
        "import json\n"
        "from pipeline_plan import PlannedPipeline\n"
        "made = PlannedPipeline(range(15), before=1, loss_fn=None)\n"
        "print(json.dumps([made.parts, made.bounds, sorted(made.options)]))\n",
    )
    assert found[0] == [0, 6, 10, 15]
    assert found[1] == [[0, 6]] * 8 + [[6, 10]] * 8 + [[10, 15]] * 8
    assert found[2] == ["activation_checkpoint_interval", "loss_fn"]


def test_deepspeed_refuses_a_model_of_fewer_layers(tmp_path: Path) -> None:
    exporting.write(tmp_path, exporting.export_plan("deepspeed", instance(), UNEVEN))
    code = "from pipeline_plan import PlannedPipeline as Made\nMade(range(12))\n"
    why = read_by(tmp_path, DEEPSPEED, code)
    assert re.search("ValueError: .*expected 1 before the 12", why)


NEW = {
    "parallelism": {
        "pipeline_parallel_degree": 1,
        "tensor_parallel_degree": 1,
        "data_parallel_shard_degree": -1,
        "data_parallel_replicate_degree": 1,
        "fsdp_reshard_after_forward": "default",
        "pipeline_parallel_schedule": "",
        "module_fqns_per_model_part": None,
        "pipeline_parallel_microbatch_size": 1,
    },
    "training": {"local_batch_size": 8, "global_batch_size": -1, "seq_len": 2048}
    | {"disable_cuda_graphs": False},
    "activation_checkpoint": {},
}
_KEPT = [*NEW["parallelism"].items()][:-1]
NEWEST = {
    "parallelism": dict(_KEPT) | {"num_pp_microbatches": 1},
    "training": {
        "num_tokens_per_microbatch_per_dp_rank": 1,
        "num_tokens_per_train_step": -1,
        "max_context_length": 1,
        "disable_cuda_graphs": False,
    },
    "activation_checkpoint": {},
}
TITAN = """\
from types import SimpleNamespace
RELEASE = {release}
def base():
    return SimpleNamespace(**{{k: SimpleNamespace(**v) for k, v in RELEASE.items()}})
"""
SPLIT = """\
def _generate_llm_fqn_per_model_part(stages, layers):
    return [["tok_embeddings", "layers.0", "norm", "lm_head"]]
"""
TELL = (
    "import json\n"
    "from hetopt_plan import plan\n"
    "made = plan()\n"
    "told = {k: vars(v) for k, v in vars(made).items() if v is not None}\n"
    "print(json.dumps(told))\n"
)


POLICIES = """\
from types import SimpleNamespace
class FullAC:
    Config = staticmethod(lambda: SimpleNamespace(policy="full"))
class SelectiveAC:
    Config = staticmethod(lambda: SimpleNamespace(policy="selective"))
"""


def titan(release: dict[str, Any]) -> dict[str, str]:
    return {
        "titan_base.py": TITAN.format(release=release),
        "torchtitan/__init__.py": "",
        "torchtitan/distributed/__init__.py": "",
        "torchtitan/distributed/pipeline_parallel.py": SPLIT,
        "torchtitan/distributed/activation_checkpoint.py": POLICIES,
    }


@pytest.mark.parametrize("release", [NEW, NEWEST], ids=["new", "newest"])
def test_torchtitan_gets_the_plan_by_the_names_of_its_release(
    release: dict[str, Any], tmp_path: Path
) -> None:
    exporting.write(tmp_path, exporting.export_plan("torchtitan", instance(), UNEVEN))
    base = {"BASE_CONFIG": "titan_base:base"}
    found = read_by(tmp_path, titan(release), TELL, **base)
    fields = found["parallelism"]
    assert fields["pipeline_parallel_degree"] == 3
    assert fields["tensor_parallel_degree"] == 4
    assert fields["data_parallel_shard_degree"] == 2
    assert fields["pipeline_parallel_schedule"] == "1F1B"
    assert fields["fsdp_reshard_after_forward"] == "never"
    (parts,) = (value for key, value in fields.items() if "fqns" in key)
    assert [len(part) for part in parts] == [6, 4, 5]
    assert parts[0][:2] == ["tok_embeddings", "layers.0"]
    assert parts[2] == ["layers.9", "layers.10", "layers.11", "norm", "lm_head"]
    training = found["training"]
    assert found["activation_checkpoint"] == {"policy": "full"}
    assert training.pop("disable_cuda_graphs")
    if release is not NEWEST:
        assert fields["pipeline_parallel_microbatch_size"] == 2
        wanted = {"local_batch_size": 16, "global_batch_size": 32, "seq_len": 128}
    else:
        assert fields["num_pp_microbatches"] == 8
        wanted = {
            "num_tokens_per_microbatch_per_dp_rank": 2 * 128,
            "num_tokens_per_train_step": 32 * 128,
            "max_context_length": 128,
        }
    assert training == wanted


def test_torchtitan_without_the_names_of_any_release_is_refused(tmp_path: Path) -> None:
    exporting.write(tmp_path, exporting.export_plan("torchtitan", instance(), UNEVEN))
    other = {**NEW, "training": {"batch": 1}}
    code = "from hetopt_plan import plan\nplan()\n"
    why = read_by(tmp_path, titan(other), code, BASE_CONFIG="titan_base:base")
    assert re.search("AttributeError: .*this torchtitan has none of", why)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("", ["--module", "hetopt_plan", "BASE_CONFIG=m:f"]),
        ("toml", ["--job.config_file", "plan.toml", "--model.name", "llama 3"]),
    ],
)
def test_torchtitan_is_started_with_either_configuration(
    config: str, words: list[str], tmp_path: Path
) -> None:
    env = {"CONFIG": config, "BASE_CONFIG": "m:f"}
    own = ("--model.name", "llama 3")
    calls = started(tmp_path, "torchtitan", UNEVEN, *own, **env)
    assert len(calls) == 4
    for _, given, _ in calls:
        assert {"--no-python", *words} <= set(given)
