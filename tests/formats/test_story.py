"""A user's way from a config.json and hosts to a trainer's files, for four models.

The models have few layers; their configurations and the hosts are in
`benchmarks/data/story`.
"""

import json
from pathlib import Path

import pytest
from command_line import typed
from exported import reader
from places import ROOT

DATA = ROOT / "benchmarks" / "data" / "story"
MODELS = sorted(path.parent.name for path in DATA.glob("*/config.json"))
WORK = ["--from", "hostfile", "--global-batch", "32", "--sequence-length", "8192"]
HOSTS = {"a100-1", "a100-2", "rtx-1"}
#: So many layers that the planner has a choice, and few enough for a second.
LAYERS = 12
LINKS = ["-o", "inter_gbytes_per_s=25GbE", "--island", "a100-*=25GB/s"]


#: Models of families that a trainer has not, and so refuses.
NOT_RUN = {("torchtitan", "mixtral-8x7b"), ("torchtitan", "qwen2.5-14b")}

LONG = {model: pytest.mark.slow for model in ("mixtral-8x7b", "llama-3.1-70b")}


def hetopt(*words: str | Path, code: int = 0) -> str:
    told = typed(*words)
    assert told.exit_code == code, (words, told.output)
    return told.output


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=LONG.get(model, ())) for model in MODELS]
)
def test_what_is_planned_for_a_trainer_is_exported_to_it(
    model: str, tmp_path: Path
) -> None:
    hosts, cluster = tmp_path / "hosts.txt", tmp_path / "cluster.yaml"
    listed = (DATA / "hosts.txt").read_text(encoding="utf-8").splitlines()
    named = [line for line in listed if line.split()[0] in HOSTS]
    hosts.write_text("\n".join(named), encoding="utf-8")
    config = tmp_path / "config.json"
    whole = json.loads((DATA / model / "config.json").read_text(encoding="utf-8"))
    config.write_text(json.dumps({**whole, "num_hidden_layers": LAYERS}))
    hetopt("assemble", config, hosts, *WORK, *LINKS, "--out", cluster)
    for target in ("megatron", "torchtitan"):
        plan, out = tmp_path / f"{target}.json", tmp_path / target
        words = ("plan", cluster, "--for", target, "--planner", "grid")
        words += ("--out", plan)  # the planner ends by itself
        if (target, model) in NOT_RUN:
            assert "not supported by our torchtitan export" in hetopt(*words, code=2)
            assert not plan.exists()
            continue
        hetopt(*words)
        hetopt("export", plan, "--to", target, "--out", out)
        hetopt("check", plan)
        made = json.loads(plan.read_text(encoding="utf-8"))
        assert made["evaluation"]["least_headroom_mib"] >= 0
        files = {path.name: path.read_text("utf-8") for path in out.iterdir()}
        assert reader(target).validate(files) == []
        told = reader(target).read(files)
        cuts = {stage.layers for one in told.pipelines for stage in one.stages}
        assert cuts == {
            tuple(stage["layers"])
            for one in made["plan"]["pipelines"]
            for stage in one["stages"]
        }
