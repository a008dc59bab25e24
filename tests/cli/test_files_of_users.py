"""Lists of hosts and runs as users keep them: from the file to the answer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import typed
from places import TESTS

CASES = TESTS / "cli" / "cases"
BOX = "{} slots=8 type=A100-80GB-SXM4\n"


def answered(*words: object) -> str:
    result = typed(*words)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def assembled(folder: Path, model: str, hosts: Path, batch: int, length: int) -> Path:
    path = folder / "instance.yaml"
    answered(
        *("assemble", model, hosts, "--global-batch", batch),
        *("--sequence-length", length, "-o", "inter_gbytes_per_s=25", "--out", path),
    )
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Return the answer to a run on boxes of eight A100."""

    def checked(file: str, model: str, boxes: int, batch: int, length: int, *more: str):
        hosts = tmp_path / "hosts"
        hosts.write_text("".join(BOX.format(f"a{i}") for i in range(boxes)))
        instance = assembled(tmp_path, model, hosts, batch, length)
        words = ("--from", CASES / file, "--instance", instance, *more)
        return answered("check", *words, "--time-limit", "2")

    return checked


def test_a_run_of_flagscale_is_read_by_its_own_sections(
    run: Callable[..., str],
) -> None:
    answer = run("flagscale_system.yaml", "llama-3-8b", 2, 64, 4096)
    assert "YAML of FlagScale" in answer
    assert "tensor parallel 4, pipeline parallel 2" in answer
    assert "does not fit" not in answer


def test_a_run_of_latent_attention_has_its_settings_compared(
    run: Callable[..., str],
) -> None:
    model = str(CASES / "latent_attention_run.json")
    answer = run("latent_attention_run.args", model, 1, 16, 2048)
    assert "The run takes" in answer
    assert "No change" not in answer


def test_a_proposed_run_has_one_way_to_lay_its_layers(run: Callable[..., str]) -> None:
    model = str(CASES / "layout_and_virtual_stages.json")
    file = "layout_and_virtual_stages.args"
    told = json.loads(run(file, model, 1, 32, 4096, "--json"))["advice"]["words"]
    flags = {x for x in (CASES / file).read_text().split() if x.startswith("--")}
    flags -= {word["name"] for word in told if word["new"] is None}
    flags |= {word["name"] for word in told if word["new"] is not None}
    layout, runs = "pipeline-model-parallel-layout", "num-virtual-stages-per-pipeline"
    assert sum(layout in flag or runs in flag for flag in flags) <= 1
    if any(layout in flag for flag in flags):
        assert not any("last-pipeline-num-layers" in flag for flag in flags)
