"""Files that no editor of ours wrote: each gets an answer that names file and field."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import document, typed
from disk import put
from places import TESTS
from pydantic import ValidationError

from hetopt import files
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs.runs.prediction import predictions
from hetopt.costs.runs.rows import Run
from hetopt.errors import HetoptError, InstanceError
from hetopt.problems import training_plan as judge
from hetopt.recovery.replay import traces as spot
from hetopt.scheduling import traces
from hetopt.schema import Instance
from hetopt.search import symmetric
from hetopt.text.complaints import path_of, validated
from hetopt.text.parsing import read_table

DEFECTS = TESTS / "defects"
SMALL = "tiny/two-nodes"
HEADERS = {
    "jobs": "submit_s,duration_s,gpus",
    "spot": "time_s,gpus",
    "prices": "InstanceType,AcceleratorName,AcceleratorCount,Region,Price",
}
READERS: dict[str, Any] = {
    "jobs": traces.read,
    "spot": spot.read,
    "prices": lambda path: api_skypilot(path),
}


def api_skypilot(path: Path) -> Any:
    from hetopt.formats.skypilot import prices

    return prices.read([path], spot=False)


def refused(*words: str | Path) -> dict[str, Any]:
    """The error of a command with exit code 2 and no traceback."""
    return document(*words, code=2)["error"]


# --- tables ------------------------------------------------------------------------


def test_old_excels_job_trace_and_price_list_are_read() -> None:
    (row,), left_out = traces.read(DEFECTS / "cr-jobs.csv")
    assert left_out == 0
    assert (row.submit_s, row.gpus) == (0, 1)
    offers = api_skypilot(DEFECTS / "cr-vms.csv")["offers"]
    assert {offer["gpu"] for offer in offers} == {"1xA6000", "8xV100"}


@pytest.mark.parametrize("kind", READERS)
def test_a_header_field_that_is_too_long_is_cut_in_the_message(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "long.csv"
    for text, told in (
        (f"{HEADERS[kind]},{'x' * 140_000}\n0,1,1,1,1,1\n", "not CSV: field larger"),
        (f"{'x' * 20_000}\n0\n", "long.csv"),
    ):
        path.write_text(text)
        with pytest.raises(InstanceError, match=told) as caught:
            READERS[kind](path)
        assert caught.value.file == str(path)
        assert len(str(caught.value)) < 400


# --- texts -------------------------------------------------------------------------

STRANGE = ["\0", "\ud800", "\udfff tail"]


@pytest.mark.parametrize("text", STRANGE, ids=["NUL", "high", "low"])
@pytest.mark.parametrize("place", ["value", "key", "file name"])
def test_texts_that_no_file_can_hold_are_refused(
    text: str, place: str, tmp_path: Path
) -> None:
    tree: Any = {"problem": text}
    if place == "key":
        tree = {text: 1}
    if place == "file name":
        tree = {"model": {"config": f"{text}.json"}}
    path = put(tmp_path / "strange.json", tree)
    found = refused("solve", path)
    assert found["file"] == str(path)
    assert "expected whole text" in found["message"]


def test_long_keys_are_cut_wherever_they_stand(tmp_path: Path) -> None:
    key, path = "k" * 20_000, tmp_path / "long.json"
    twice = f'{{"{key}": 1, "{key}": 2}}'
    texts = [twice, json.dumps({"problem": "device_grouping", key: 1})]
    texts += [json.dumps({"problem": key}), json.dumps({"plan": {key: 1}})]
    for text in texts:
        path.write_text(text)
        for reader in (files.load_problem, files.load_plan):
            with pytest.raises(HetoptError) as caught:
                reader(path)
            assert len(str(caught.value)) < 2000
    assert path_of((key, 3)) == f"{'k' * 57}...[3]"
    assert key not in refused("plan", key)["message"]


# --- names of files ----------------------------------------------------------------

LONG = "n" * 300

INPUTS = [
    ["plan", f"{LONG}.yaml"],
    ["check", LONG],
    ["fit", LONG],
    ["schedule", SMALL, "--trace", LONG],
    ["bench", "--report", LONG],
]
OUTPUTS = [
    ["plan", SMALL, "--out", f"{LONG}.json"],
    ["compare", SMALL, "--out", f"{LONG}.html"],
    ["export", "plan.json", "--to", "megatron", "--out", LONG],
]


@pytest.mark.parametrize("words", INPUTS, ids=lambda words: " ".join(words)[:24])
def test_a_name_that_is_too_long_is_no_file(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(*words)["message"]


@pytest.mark.parametrize("words", OUTPUTS, ids=lambda words: " ".join(words)[:24])
def test_a_name_that_is_too_long_is_refused_before_the_work(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "plan.json" in words:
        made = typed("plan", SMALL, "--planner", "megatron", "--out", "plan.json")
        assert made.exit_code == 0
    before = sorted(tmp_path.rglob("*"))
    found = refused(*words)
    assert found["kind"] == "cannot_write"
    assert "File name too long" in found["message"]
    assert sorted(tmp_path.rglob("*")) == before


# --- numbers that no table of a solver holds ----------------------------------------


def test_memory_that_no_table_holds_is_refused_by_its_field() -> None:
    found = refused("plan", DEFECTS / "large-memory.yaml")
    assert found["field"] == "cluster.gpus.small.memory_gib"
    assert "below 976562.5" in found["message"]


def test_a_link_too_slow_for_the_table_is_refused_by_its_field() -> None:
    path = DEFECTS / "slow-link-offers.yaml"
    for words in ([], ["--planner", "espresso"], ["--frontier"]):
        found = refused("provision", path, *words)
        assert found["file"] == str(path)
        assert found["field"].endswith("offers[0].by_data_parallel.2.sync_us")
        assert "gbytes_per_s" in found["message"]


# --- files of our own ----------------------------------------------------------------


@pytest.mark.parametrize("command", ["simulate", "explain", "export"])
def test_what_is_wrong_with_a_plan_names_its_file(command: str, tmp_path: Path) -> None:
    stage = {"layers": [0, 3], "replicas": [{"gpus": ["node0:0", "node1:7"]}]}
    plan = {"pipelines": [{"micro_batches": 9, "stages": [stage]}]}
    path = put(tmp_path / "plan.json", {"instance": SMALL, "plan": plan})
    more = ["--to", "megatron", "--out", tmp_path / "e"] if command == "export" else []
    found = refused(command, path, *more)
    assert found["file"] == str(path)
    assert found["message"].startswith(f"{path}: ")


# --- numbers at the edge ----------------------------------------------------------


def _numbers(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a tree has numbers that may be fractions."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _numbers(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, key)


def _with(tree: Any, path: tuple[Any, ...], value: float) -> Any:
    made = json.loads(json.dumps(tree))
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


@pytest.mark.parametrize("name", ["tiny-peak", "tiny-calibrated-peak"])
def test_no_number_of_an_instance_is_too_small_or_large_to_plan(name: str) -> None:
    """Each number at every edge: refused by its field, or bounded and planned."""
    text = (DEFECTS / f"{name}.yaml").read_text("utf-8")
    tree = yaml.safe_load(re.sub(r"1(\.0)?e-3[02]0", "1.0", text))
    tree.pop("schema", None)
    tree["model"]["layers"], tree["cluster"]["nodes"] = 2, tree["cluster"]["nodes"][:2]
    tree["workload"] |= {"alternatives": {"interleave": [2]}}  # few, to be bounded soon
    for node in tree["cluster"]["nodes"]:
        node["count"] = 2
    constants = ("pace", "product.bf16", "traffic", "exchange", "hop", "update")
    for path in _numbers(tree):
        if "constants" in path and path[-1] not in constants:
            continue  # there are some hundred
        for value in (1e-320, 1e-12, 1e300, 999_999.0):
            told, made = None, _with(tree, path, value)
            try:
                instance = validated(Instance, made, "f")
            except InstanceError as error:
                told = str(error)
            if told is not None:
                assert str(path[-1]) in told, (path, value)
                continue
            with suppress(HetoptError):
                bound = training_plan_bound(instance)
                plan = symmetric.plan(instance)
                assert bound.value <= judge.evaluate(instance, plan).objective


@pytest.mark.parametrize("sparse", [False, True])
def test_zeros_of_a_run_are_refused_or_predicted(sparse: bool) -> None:
    """Whatever number of a row is 0, nothing is divided by it."""
    row = {
        **{"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "head_dim": 64},
        **{"intermediate": 512, "vocabulary": 1000, "seq": 256, "gpu": "h100_80gb"},
        **{"gpus": 8, "dp": 8, "tp": 1, "pp": 1, "mbs": 1, "gbs": 8, "ga": 1},
        **{"precision": "bf16 mixed", "framework": "Megatron-LM", "iteration_s": 1},
    }
    if sparse:
        row |= {"experts": 8, "experts_per_token": 2, "moe_intermediate": 128, "ep": 2}
    fields = Run.model_fields
    for name in fields:
        try:
            run = Run.model_validate(row | {name: 0})
        except ValidationError:
            continue
        (found,) = predictions([run])
        assert found.not_modelled or (found.iteration_s or 0) > 0, name


# --- what is no file --------------------------------------------------------------


@pytest.mark.parametrize("words", [["check", "PIPE"], ["plan", "tiny/two-nodes"]])
def test_pipes_that_nobody_uses_are_refused(words: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    asked = [str(pipe) if word == "PIPE" else word for word in words]
    if asked == words:
        asked += ["--planner", "megatron", "--out", str(pipe)]
    found = typed(*asked)
    assert found.exit_code == 2
    assert "expected a file" in found.output
    with pytest.raises(InstanceError, match="a pipe or a device"):
        read_table(Path("/dev/zero"))
