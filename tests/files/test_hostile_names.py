"""Hostile names in every field, for every target: refused, or run without effect.

What a target writes is started with stand-ins for every program that it calls. They
note down their words, and `ssh` runs its command in a shell, as the other host would.
Then no file was made, and the calls are those of a run with harmless names.

The default run takes a part of the names; all of them: `-m slow`.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from command_line import ran
from disk import put
from exporter_plans import SHAPES, instance_for
from fake_ray import RAY, written

from hetopt.errors import InstanceError, Unsupported
from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance, name_fault
from hetopt.text.complaints import validated
from hetopt.text.parsing import parse_tree

NAMES = {
    "newline": "m\n$(touch STRUCK)",
    "substitution": "$(touch STRUCK)",
    "backticks": "`touch STRUCK`",
    "semicolon": ";touch STRUCK",
    "and": "m && touch STRUCK",
    "single-quotes": "m'; touch STRUCK; '",
    "double-quotes": 'm"; touch STRUCK; "',
    "hash": "# $(touch STRUCK)",
    "format": "%s%n$(touch STRUCK)",
    "option": "-oProxyCommand=touch STRUCK",
    "glob": "*",
    "blank": "a b",
    "right-to-left": "a\u202eb",
    "lone-surrogate": "a\ud800",
    "long": "x" * 201,
    "parents": "../../STRUCK",
    "yaml-tag": "!!python/object/apply:os.system ['touch STRUCK']",
    "yaml-number": "1e3",
    "heredoc": "EOF",
    "python": '""" + __import__("os").system("touch STRUCK") + """',
}
# The fields that reach files, with a harmless name for each.
HARMLESS = {
    "name": "quiet",
    "model.name": "calm",
    "cluster.nodes": "still",
    "cluster.gpus": "mild",
}
# What the default run takes: names that are written, several at a time, and others.
USUAL: list[dict[str, str]] = [
    {"name": "substitution", "model.name": "single-quotes"},
    {"cluster.nodes": "heredoc", "cluster.gpus": "single-quotes"},
    {"model.name": "substitution", "cluster.gpus": "yaml-number"},
    {"model.name": "newline"},
    {"cluster.nodes": "newline"},
    {"cluster.nodes": "option"},
    {"cluster.gpus": "right-to-left"},
]
STANDS_IN = """\
#!/bin/bash
exec 9>> "$CALLS"
flock 9
printf '%s\\0' "${0##*/}" "$@" >&9
printf '\\n\\0' >&9
exec 9>&-
"""
SSH = """\
while [ "$1" = -ntt ] || [ "$1" = -- ]; do shift; done
case "$1" in -*) echo "an option: $1" >> "$STRUCK"; exit 1 ;; esac
shift
exec bash -c "$*"
"""
SILENT = "srun sbatch torchrun deepspeed python3 pdsh scp rsync accelerate train"
PROGRAMS = {
    "ssh": SSH,
    "scontrol": 'for host in $3; do echo "$host"; done\n',
    "sky": '[ "$1" = status ] && echo 10.0.0.1; true\n',
    "kubectl": '[ "$1" = apply ] && cat > "applied.$BASHPID.yaml"; true\n',
    **dict.fromkeys(SILENT.split(), ""),
    "touch": '/usr/bin/touch "$@"\n',
}
OURS = {
    **{name: {"ssh", "torchrun"} for name in exporting.names()},
    "accelerate": {"accelerate", "ssh"},
    "deepspeed": {"deepspeed"},
    "flagscale": set(),
    "hexiscale": {"ssh", "python3"},
    "jobset": {"kubectl", "train"},
    "kueue": {"kubectl", "train"},
    "ray": {"train"},
    "skypilot": {"sky", "train"},
    "slurm": {"scontrol", "srun"},
}


class Ground(NamedTuple):
    """A folder to run in, with stand-ins, which note down their calls."""

    root: Path
    tools: Path

    def run(self, command: list[str], folder: Path, **env: str) -> Any:
        base = {
            "PATH": f"{self.tools / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.tools / "lib"),
            "HOME": str(self.root / "home"),
            "CALLS": str(self.root / "calls"),
            "TOLD": str(self.root / "told"),  # to the stand-in of Ray
            "STRUCK": str(self.root / "STRUCK"),
        }
        return ran(*command, cwd=folder, env={**base, **env})

    def calls(self) -> list[tuple[str, ...]]:
        told = self.root / "calls"
        text = told.read_text() if told.exists() else ""
        rows = [row for row in text.split("\n\0") if row]
        return sorted(tuple(row.split("\0")[:-1]) for row in rows)

    def struck(self) -> list[str]:
        """Files that only a command within a name makes."""
        return [str(path) for path in self.root.rglob("*STRUCK*")]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins for programs and for Ray's library."""
    root = tmp_path_factory.mktemp("tools")
    (root / "bin").mkdir()
    for name, more in PROGRAMS.items():
        put(root / "bin" / name, STANDS_IN + more).chmod(0o755)
    written(root / "lib", RAY)
    return root


def ground(root: Path, tools: Path) -> Ground:
    for folder in ("home", "checkout"):
        (root / folder).mkdir()
    return Ground(root, tools)


@cache
def plan_for(target: str) -> TrainingPlan:
    """The plan on most nodes that the target takes."""
    data = instance_for(target)
    taken = [plan for plan in SHAPES if not exporting.reasons(target, data, plan)]
    return max(taken, key=lambda plan: len({r.node for r in plan.replicas()}))


def named(target: str, names: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the trees of an instance and of its plan, with a name in each field."""
    plan = plan_for(target)
    node = plan.pipelines[0].stages[0].replicas[0].node
    data = json.loads(instance_for(target).model_dump_json())
    tree = json.loads(plan.model_dump_json())
    data["name"], data["model"]["name"] = names["name"], names["model.name"]
    gpus, nodes = data["cluster"]["gpus"], data["cluster"]["nodes"]
    gpu = next(one["gpu"] for one in nodes if one["name"] == node)
    gpus[names["cluster.gpus"]] = gpus.pop(gpu)
    for one in nodes:
        one["gpu"] = names["cluster.gpus"] if one["gpu"] == gpu else one["gpu"]
        one["name"] = names["cluster.nodes"] if one["name"] == node else one["name"]
    named_node = json.dumps(names["cluster.nodes"])[:-1]
    return data, json.loads(json.dumps(tree).replace(f'"{node}:', f"{named_node}:"))


def refused_or_written(
    target: str, names: dict[str, str], folder: Path
) -> dict[str, str] | str:
    """Return the files that were written, or why not: a message to be printed.

    Fields without one of the names have harmless ones.
    """
    data, tree = named(target, HARMLESS | names)
    try:
        made = validated(Instance, data, "instance.json")
        plan = validated(TrainingPlan, tree, "plan.json")
        files = exporting.export_plan(target, made, plan)
    except (InstanceError, Unsupported) as error:
        return str(error)
    exporting.write(folder, files)
    return files


def run(target: str, files: dict[str, str], place: Ground, **env: str) -> str:
    """Start what was written as its users do; the complaints, where it failed."""
    folder = place.root / "written"
    hosts = {f"SLURM_JOB_NODELIST_HET_GROUP_{i}": f"h{i}a h{i}b" for i in range(4)}
    hosts |= {f"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_{i}": "8(x2)" for i in range(4)}
    hosts["SLURM_JOB_CPUS_PER_NODE"] = "8"
    env = {
        **{"SLURM_JOB_NODELIST": "h1 h2 h3 h4", "IMAGE": "i", "TRAIN": "train"},
        **{"BASE_CONFIG": "m:f", "HEXISCALE": str(place.root / "checkout")},
        **hosts,
        **env,
    }
    told = []
    for script in ("launch.sh", "job.sbatch"):
        if script in files:
            words = ["bash", script, "--steps", "--data", "a b"]
            told.append(place.run(words, folder, **env))
    if target == "ray":
        told.append(place.run([sys.executable, "launch.py"], folder, **env))
    for task, more in nodes_of(target, files):
        told.append(place.run(["bash", "-ec", task], folder, **{**more, **env}))
    failed = [one for one in told if one.returncode]
    return "".join(f"{one.args}: {one.returncode} {one.stderr}" for one in failed)


def nodes_of(
    target: str, files: dict[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """What runs on the first node of every task of a scheduler, and its environment."""
    if target == "skypilot":
        for name in files:
            if name.endswith(".yaml"):
                task = yaml.safe_load(files[name])
                ranks = {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.0.0.1"}
                yield task["run"], {**task["envs"], **ranks}
    if target in ("jobset", "kueue"):
        for job in yaml.safe_load(files["jobset.yaml"])["spec"]["replicatedJobs"]:
            pod = job["template"]["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            env = {one["name"]: one["value"] for one in container["env"]}
            yield container["command"][2], {**env, "JOB_COMPLETION_INDEX": "0"}


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Any:
    """The calls of a run with harmless names, by target."""

    @cache
    def calls(target: str) -> list[tuple[str, ...]]:
        place = ground(tmp_path_factory.mktemp("harmless"), tools)
        made = refused_or_written(target, {}, place.root / "written")
        assert isinstance(made, dict)
        assert run(target, made, place) == ""
        return _without(place.calls(), place.root)

    return calls


def _without(calls: list[tuple[str, ...]], root: Path) -> list[tuple[str, ...]]:
    """Calls without the folder that they were made in."""
    return sorted(
        tuple(word.replace(str(root), "ROOT") for word in call) for call in calls
    )


@pytest.mark.parametrize("target", exporting.names())
def test_a_hostile_name_is_refused_or_runs_no_command(
    target: str, tmp_path: Path, tools: Path, harmless: Any
) -> None:
    for number, labels in enumerate(USUAL):
        folder = tmp_path / str(number)
        if not _is_written(target, labels, folder, tools, harmless):
            for field, label in labels.items() if len(labels) > 1 else ():
                one, alone = {field: label}, folder / field
                _is_written(target, one, alone, tools, harmless)


@pytest.mark.slow
@pytest.mark.parametrize("target", exporting.names())
@pytest.mark.parametrize("field", HARMLESS)
def test_every_hostile_name_is_refused_or_runs_no_command(
    target: str, field: str, tmp_path: Path, tools: Path, harmless: Any
) -> None:
    for label in NAMES:
        _is_written(target, {field: label}, tmp_path / label, tools, harmless)


def _is_written(
    target: str, labels: dict[str, str], folder: Path, tools: Path, harmless: Any
) -> bool:
    """Return whether such names are written; they are refused or run no command."""
    names = {field: NAMES[label] for field, label in labels.items()}
    folder.mkdir()
    place = ground(folder, tools)
    made = refused_or_written(target, names, folder / "written")
    if isinstance(made, str):
        assert all(line.isprintable() for line in made.split("\n"))
        assert len(made) < 2000
        if "lone-surrogate" not in labels.values():  # which no JSON holds
            assert any(field in made for field in names)
        return False
    assert {name_fault(name) for name in names.values()} == {None}
    assert run(target, made, place) == "", names
    assert place.struck() == [], names
    calls, known = _without(place.calls(), folder), harmless(target)
    assert {call[0] for call in calls} <= OURS[target]
    assert Counter(call[0] for call in calls) == Counter(call[0] for call in known)
    if {*names} <= {"name", "model.name"}:
        assert calls == known
    for field, name in names.items():
        if field not in ("name", "model.name") and _says(known, HARMLESS[field]):
            assert _says(calls, name), field
        _is_data(made, name)
    return True


def _says(calls: list[tuple[str, ...]], name: str) -> bool:
    """Return whether some word of some call has the name."""
    return any(name.lower() in word.lower() for call in calls for word in call)


def _is_data(files: dict[str, str], name: str) -> None:
    """YAML and JSON files hold the name whole, whoever reads them, or not at all."""
    for file, text in files.items():
        if file.endswith(".yaml"):
            assert yaml.safe_load(text) == parse_tree(text, file, is_json=False)
        if file == "plan.json":
            assert json.dumps(name) in text


# --- what the user sets ------------------------------------------------------------

SETS = {
    "accelerate": ("TRAIN", "PORT"),
    "deepspeed": ("TRAIN",),
    "hexiscale": ("PORT",),
    "jobset": ("IMAGE", "TRAIN", "ARGS"),
    "llamafactory": ("PORT",),
    "megatron": ("PRETRAIN", "PORT"),
    "skypilot": ("CLUSTER", "TRAIN", "ARGS"),
    "torchtitan": ("BASE_CONFIG", "PORT"),
    "transformers": ("PORT",),
}
SET_TO = [
    *("substitution", "single-quotes"),
    *(
        pytest.param(label, marks=pytest.mark.slow)
        for label in ("double-quotes", "semicolon", "glob", "and", "hash", "blank")
    ),
]


@pytest.mark.parametrize(
    ("target", "variable"),
    [(target, variable) for target, names in SETS.items() for variable in names],
)
@pytest.mark.parametrize("label", SET_TO)
def test_what_the_user_sets_reaches_the_program_as_one_word(
    target: str, variable: str, label: str, tmp_path: Path, tools: Path
) -> None:
    value, place = NAMES[label], ground(tmp_path, tools)
    made = refused_or_written(target, {"name": "n"}, tmp_path / "written")
    assert isinstance(made, dict)
    env = {"IMAGE": "i", "HEXISCALE": str(tmp_path / "checkout")}
    if variable == "ARGS" or target == "accelerate":  # for a program of the user's
        env["TRAIN"] = "train"
    env |= {"BASE_CONFIG": "m:f", "ARGS": "--steps 1 --data x", variable: value}
    done = place.run(["bash", "launch.sh", value], tmp_path / "written", **env)
    assert done.returncode == 0, done.stderr
    assert place.struck() == []
    calls = [call for call in place.calls() if call[0] != "ssh"]
    assert {call[0] for call in calls} <= OURS[target]
    if target == "jobset":
        texts = [x.read_text() for x in (tmp_path / "written").glob("applied.*.yaml")]
        (tree,) = (yaml.safe_load(text) for text in texts if "JobSet" in text)
        assert value in json.dumps(tree).encode().decode("unicode_escape")
        return
    words = [word for call in calls for word in call]
    assert words.count(value) >= 1
    gpu = HARMLESS["cluster.gpus"]
    spelt = {"BASE_CONFIG": "BASE_CONFIG={}", "CLUSTER": f"{{}}-{gpu}-8"}
    if target == "skypilot" and variable != "CLUSTER":
        spelt[variable] = f"{variable}={{}}"
    assert spelt.get(variable, "{}").format(value) in words
