"""What to change of a run: the best of all settings."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from command_line import document, typed
from disk import put
from exporter_plans import MEGATRON_RUN as RUN
from exporter_plans import instance

from hetopt import api, formats
from hetopt.errors import InstanceError
from hetopt.formats.importing import changes
from hetopt.formats.importing.changes import Advice, advise, recognise
from hetopt.problems import training_plan
from hetopt.problems.training_plan import targets
from hetopt.report.changes import sentence
from hetopt.schema import Instance

#: On few GPUs, so that all settings are soon judged.
FEW = RUN | {"num_layers": 6, "tensor_model_parallel_size": 2, "global_batch_size": 12}
ENOUGH_S = 600.0


def flags(run: dict[str, Any]) -> list[str]:
    return [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in run.items()
    ]


def script(run: dict[str, Any]) -> str:
    """As Megatron's examples are: arrays, variables, a command of several lines."""
    degree = run["tensor_model_parallel_size"]
    run = {**run, "tensor_model_parallel_size": "${TP}"}
    lines = "\n  ".join(flags(run)[:6])
    rest = " \\\n  ".join(flags(run)[6:])
    return (
        f"TP=${{TP:-{degree}}}\nARGS=(\n  {lines}\n)\n"
        f'torchrun --nproc-per-node 8 pretrain_gpt.py "${{ARGS[@]}}" \\\n  {rest}\n'
        "echo done\n"
    )


WRITTEN = {
    "words.txt": lambda run: "pretrain_gpt.py " + " ".join(flags(run)) + "\n",
    "lines.txt": lambda run: "\n".join(flags(run)) + "\n",
    "script.sh": script,
}


def written(folder: Path, name: str, run: dict[str, Any] = RUN) -> Path:
    return put(folder / name, WRITTEN[name](run))


def few() -> Instance:
    """Return four big GPUs and two small ones, for the run `FEW`."""
    tree = instance(12, layers=6).model_dump(mode="json", exclude_unset=True)
    tree["cluster"]["nodes"] = tree["cluster"]["nodes"][::2]
    for node in tree["cluster"]["nodes"]:
        node["count"] //= 2
    return Instance.model_validate_json(json.dumps(tree))


def found_in(path: Path, data: Instance) -> tuple[Any, Advice]:
    module, asked = recognise([path])
    return module, advise(module, asked, data, ENOUGH_S)


def test_the_best_is_that_of_all_settings(advice: Advice, tmp_path: Path) -> None:
    """Each written as arguments of its own, read and judged."""
    data = few()
    assert advice.is_whole
    times = {}
    sizes = sorted({*changes._SAMPLES, *data.workload.micro_batch_sizes})
    space = product((1, 2, 4), (1, 2, 3, 6), sizes, (None, "full"), (0, 1))
    reader: Any = formats.importer("megatron-plan")
    for tensor, stages, size, rule, zero in space:
        for runs in (1, 2, 3, 6) if stages > 1 else (1,):
            run = {
                **FEW,
                "tensor_model_parallel_size": tensor,
                "pipeline_model_parallel_size": stages,
                "micro_batch_size": size,
                "recompute_granularity": rule,
            }
            run |= {"use_distributed_optimizer": True} if zero else {}
            run |= {"num_virtual_stages_per_pipeline_rank": runs} if runs > 1 else {}
            told = {k: v for k, v in run.items() if v is not None}
            path = written(tmp_path, "lines.txt", told)
            try:
                (claim,) = reader.claims(path, data)
            except InstanceError:
                continue
            judged = training_plan.evaluate(claim.data, claim.plan)
            trainer = claim.data.on("megatron")
            if judged.valid and not any(targets.broken(trainer, claim.plan)):
                times[tensor, stages, size, rule, zero, runs] = judged.objective
    least = min(times.values())
    assert advice.best.us <= least * (1 + changes.NEAR)
    assert advice.run.us is None or advice.best.us <= advice.run.us
    if "layers" not in {change.setting for change in advice.changes}:
        assert least <= advice.best.us


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    path = written(tmp_path_factory.mktemp("run"), "words.txt", FEW)
    return found_in(path, few())[1]


def test_no_setting_is_better_than_the_bound_that_is_told(tmp_path: Path) -> None:
    """The bound is of plans that have any of the settings that were looked at."""
    file = put(
        tmp_path / "run.yaml",
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\n"
        "deepspeed: ds_z3.json\ngradient_checkpointing: true\n",
    )
    narrow = instance(48).with_workload(micro_batch_sizes=(1,))
    _, advice = found_in(file, narrow)
    assert advice.offering
    assert 2 in advice.offering[0].workload.micro_batch_sizes
    for one in advice.offering:
        assert api.no_plan_is_shorter(one).value <= advice.best.us


@pytest.mark.parametrize(
    ("tried", "whole", "words"),
    [
        (1, False, "No faster settings were found: only 1 combination of settings was"),
        (1200, False, "only 1,200 combinations of settings were tried; a longer"),
        (7, True, "Change nothing: no other settings are at least 0.5% faster"),
    ],
)
def test_nothing_is_said_to_be_best_that_was_not_compared(
    advice: Advice, tried: int, whole: bool, words: str
) -> None:
    told = {"changes": (), "words": (), "looked_at": tried, "is_whole": whole}
    assert words in sentence(advice._replace(**told))


def test_nothing_is_said_of_memory_where_the_trainer_runs_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "megatron does not run latent attention (MLA)"
    monkeypatch.setattr(changes.targets, "broken", lambda *_: iter([why]))
    _, advice = found_in(written(tmp_path, "words.txt", FEW), few())
    assert sentence(advice) == f"Other settings were not compared: {why}."


def test_values_that_json_has_not_are_texts(tmp_path: Path) -> None:
    path = put(
        tmp_path / "run.toml",
        "[training]\nlocal_batch_size = 1\nseq_len = 128\n[parallelism]\n"
        "tensor_parallel_degree = 2\nrate = inf\nday = 2025-01-01\n",
    )
    values = document("check", "--from", path)["run"]["values"]
    assert values["parallelism.rate"] == "inf"
    assert values["parallelism.day"] == "2025-01-01"
    shown = typed("check", "--from", path)
    assert "give --instance" in shown.output


def test_what_is_no_run_of_a_known_trainer_is_refused(tmp_path: Path) -> None:
    for name, text in {"a.yaml": "lr: 1e-4\n", "b.sh": "ls --all\n"}.items():
        path = put(tmp_path / name, text)
        with pytest.raises(InstanceError, match="found no run of a known trainer"):
            recognise([path])


@pytest.mark.parametrize("fits", [True, False])
def test_the_answer_is_the_first_line(tmp_path: Path, *, fits: bool) -> None:
    tree = few().model_dump(mode="json", exclude_unset=True)
    if not fits:
        for kind in tree["cluster"]["gpus"].values():
            kind["memory_gib"] = 0.01
    file = put(tmp_path / "hosts.json", tree)
    path = written(tmp_path, "script.sh", FEW)
    words = ["check", "--from", str(path), "--instance", str(file)]
    assert document(*words, code=0 if fits else 2)["valid"] == fits
    shown = typed(*words)
    first = " ".join(shown.stdout.split("\nfound", 1)[0].split())
    if not fits:
        assert first.startswith("The run does not fit, according to the model")
        return
    assert first.startswith("The run takes ")
    assert "more than the best plan" in first
    assert "Change these" in first
    assert shown.stdout.count("Change these") == 1
