"""Plans of post-training in the words of verl and NeMo-RL, counted again by GPU."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from disk import put

import hetopt
from hetopt import formats
from hetopt.errors import Unsupported
from hetopt.plans import Engines

OPTIONS = {
    **{"ports": 8, "port_gbytes_per_s": 50, "runs_on": "megatron"},
    **{"answers": 64, "prompt_tokens": 200, "mean_tokens": 300, "longest_tokens": 800},
}


def planned(planner: str, folder: Path, *cards: str, **more: Any) -> hetopt.Result:
    """A plan of the rule, on a node of 8 GPUs of each card."""
    rows = (f"n{i} slots=8 type={card}\n" for i, card in enumerate(cards))
    made = hetopt.assemble(
        *("qwen3-8b", put(folder / "hosts.txt", "".join(rows))),
        global_batch=64,
        sequence_length=1024,
        options={**OPTIONS, **more},
    )
    return hetopt.solve(made, problem="post_training", planner=planner, limits=20)


@pytest.mark.parametrize("target", formats.placers())
@pytest.mark.parametrize("planner", ["one_to_one", "shared"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_pools_have_the_gpus_of_the_plan(
    target: str, planner: str, nodes: int, tmp_path: Path
) -> None:
    found = planned(planner, tmp_path, *["H100-80GB-SXM5"] * nodes, interleave=1)
    plan: Any = found.plan
    (file,) = hetopt.export(found, target, tmp_path / target)
    told = yaml.safe_load(file.read_text())
    trains = sum(len(x.gpus) for x in plan.trains.replicas())
    serves = sum(len(part.gpus) for part in plan.engines)
    shared = plan.shared is not None
    if target == "verl":
        actor = told["actor_rollout_ref"]
        degree = actor["rollout"]["tensor_model_parallel_size"]
        assert actor["hybrid_engine"] is shared
        pools = [told["trainer"], told.get("rollout", told["trainer"])]
        counted = [pool["nnodes"] * pool["n_gpus_per_node"] for pool in pools]
    else:
        generation, every = told["policy"]["generation"], told["cluster"]
        degree = generation["vllm_cfg"]["tensor_parallel_size"]
        assert generation["colocated"]["enabled"] is shared
        total = every["num_nodes"] * every["gpus_per_node"]
        apart = generation["colocated"].get("resources")
        own = apart and (apart["num_nodes"] or 1) * apart["gpus_per_node"]
        counted = [total - own, own] if apart else [total, total]
    assert counted == [trains, serves]
    assert {part.degree for part in plan.engines} == {degree}


@pytest.mark.parametrize("target", formats.placers())
def test_an_engine_of_two_nodes_keeps_its_degree(target: str, tmp_path: Path) -> None:
    found = planned("shared", tmp_path, *["H100-80GB-SXM5"] * 2, interleave=1)
    gpus = tuple(x for part in found.plan.engines for x in part.gpus)
    one = found.plan.model_copy(update={"engines": (Engines(gpus=gpus, degree=16),)})
    told = {"plan": one.model_dump(), "instance": found.data.instance.model_dump()}
    assert hetopt.check(told).valid
    (file,) = hetopt.export(told, target, tmp_path / target)
    assert "tensor_parallel_size: 16" in file.read_text().replace("model_", "")


def test_what_pools_cannot_say_is_refused_by_name(tmp_path: Path) -> None:
    mixed = planned("shared", tmp_path, "H100-80GB-SXM5", "A100-40GB-SXM4")
    training = hetopt.plan("tiny/two-nodes", "megatron", limits=5)
    with pytest.raises(Unsupported, match="not supported by verl"):
        hetopt.export(mixed, "verl", tmp_path / "out")
    with pytest.raises(hetopt.errors.UnknownName, match="verl"):
        hetopt.export(training, "verl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def unknown(told: dict[str, Any], known: dict[str, Any], at: str = "") -> list[str]:
    """Keys that a configuration has not."""
    found = []
    for name, value in told.items():
        if name not in known:
            found.append(at + name)
        elif isinstance(value, dict):
            found += unknown(value, known[name], f"{at}{name}.")
    return found


@pytest.mark.targets
@pytest.mark.skipif(find_spec("verl") is None, reason="verl is not installed")
@pytest.mark.parametrize("planner", ["one_to_one", "shared"])
def test_verl_has_every_key(planner: str, tmp_path: Path) -> None:
    spec: Any = find_spec("verl")
    (folder,) = map(Path, spec.submodule_search_locations)
    files = (
        "trainer/config/_generated_ppo_megatron_trainer.yaml",
        "experimental/fully_async_policy/config/fully_async_ppo_megatron_trainer.yaml",
    )
    own, apart = (yaml.safe_load((folder / file).read_text()) for file in files)
    found = planned(planner, tmp_path, *["H100-80GB-SXM5"] * 2)
    (file,) = hetopt.export(found, "verl", tmp_path / "out")
    assert unknown(yaml.safe_load(file.read_text()), {**apart, **own}) == []
