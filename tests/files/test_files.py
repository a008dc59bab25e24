"""Reading instances, problems and plans, and writing documents whole."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from disk import put
from places import INSTANCES

from hetopt.errors import CannotWrite, InstanceError
from hetopt.files import load_instance, load_plan, load_problem
from hetopt.text import parsing
from hetopt.text.writing import write_text

ONE_GPU = {
    "pipelines": [
        {
            "micro_batches": 4,
            "stages": [{"layers": [0, 3], "replicas": [{"gpus": ["node0:0"]}]}],
        }
    ]
}


# --- instances -----------------------------------------------------------------


@pytest.mark.parametrize("read", [load_instance, load_problem, load_plan])
def test_a_path_that_leads_nowhere_is_bad_input(read: Any, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="found no such file"):
        read(tmp_path / "absent.yaml")
    with pytest.raises(InstanceError, match="found a folder, expected a file"):
        read(tmp_path)


# --- yaml ----------------------------------------------------------------------


def tree(text: str) -> dict[str, Any]:
    return parsing.parse_tree(text, "text", is_json=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        (".5", 0.5),
        ("010", 10),
        ("+7", 7),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("'12'", "12"),
    ],
)
def test_plain_yaml_values_are_what_they_look_like(text: str, value: Any) -> None:
    found = tree(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


def test_aliases_that_multiply_are_refused_before_they_are_built() -> None:
    lines = ["x0: &x0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"]
    for i in range(1, 12):
        lines.append(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]")
    with pytest.raises(InstanceError, match="values once aliases are written out"):
        tree("\n".join(lines))


@pytest.mark.parametrize("is_json", [True, False])
def test_deep_nesting_is_refused_at_any_depth(is_json: bool) -> None:
    for depth in (70, 900, 100_000):
        text = '{"a": ' + "[" * depth + "]" * depth + "}"
        with pytest.raises(InstanceError, match="nested more than 64 deep"):
            parsing.parse_tree(text, "text", is_json=is_json)


def test_a_file_that_is_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "MAX_BYTES", 2**20)
    file = tmp_path / "large.json"
    file.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(InstanceError, match="found more than 1 MiB"):
        load_instance(file)


def test_bytes_that_are_not_text_are_named_by_their_offset(tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"name: \xff\xfe")
    with pytest.raises(InstanceError, match="not UTF-8 at offset 6"):
        load_instance(file)


def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path: Path) -> None:
    file = tmp_path / "marked.json"
    content = json.dumps(load_instance("tiny/one-gpu").model_dump(mode="json"))
    file.write_text(content, encoding="utf-8-sig")
    assert load_instance(file).name == "tiny/one-gpu"


# --- plans -----------------------------------------------------------------------


def test_a_plan_file_may_name_an_instance_file_beside_it(tmp_path: Path) -> None:
    text = (INSTANCES / "tiny/one-gpu.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text)
    file = put(tmp_path / "plan.json", {"instance": "mine.yaml", "plan": ONE_GPU})
    assert load_plan(file)[1].name == "tiny/one-gpu"
    below = tmp_path / "below"
    below.mkdir()
    file = put(below / "plan.json", {"instance": "../mine.yaml", "plan": ONE_GPU})
    with pytest.raises(InstanceError, match="expected a file in the folder of plan"):
        load_plan(file)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("name: secret")
    below = tmp_path / "below"
    below.mkdir()
    (below / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    file = put(below / "plan.json", {"instance": "link.yaml", "plan": ONE_GPU})
    with pytest.raises(InstanceError, match="expected a file in the folder of plan"):
        load_plan(file)


@pytest.mark.parametrize("given", ["name", "path", "record"])
def test_an_instance_that_is_given_stands_in_for_the_files_own(
    given: str, tmp_path: Path
) -> None:
    document = {"instance": "tiny/two-nodes", "digest": "sha256:0", "plan": ONE_GPU}
    file = put(tmp_path / "plan.json", document)
    instance: Any = {
        "name": "tiny/one-gpu",
        "path": INSTANCES / "tiny/one-gpu.yaml",
        "record": load_instance("tiny/one-gpu"),
    }[given]
    assert load_plan(file, instance)[1].name == "tiny/one-gpu"


# --- writing ---------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.txt"
    write_text(file, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InstanceError, match="cannot be written: No space left"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_link_is_written_through_and_a_pipe_is_refused(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # nobody may ever read it
    with pytest.raises(CannotWrite, match="found a pipe"):
        write_text(pipe, "through")
    write_text("/dev/null", "away")
