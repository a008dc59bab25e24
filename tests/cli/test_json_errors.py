"""With `--json` an error is a document too: one, on stdout, of five fields."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import ran
from command_line import typed as hetopt

from hetopt import cli, errors
from hetopt.api import planning
from hetopt.errors import BoundContradicted

SMALL, OFFERS = "tiny/two-nodes", "tiny/offers"

# Words that each command refuses, the kind of error that this is, and its message.
BOTH = ("--deadline", "1", "--budget", "1")
BAD: list[tuple[str, list[str], str]] = [
    ("instance_error", ["plan", "nowhere.yaml"], "nowhere.yaml"),
    ("unsupported", ["plan", SMALL, "--option", "=1"], ""),
    ("usage_error", ["plan"], "instance"),
    ("usage_error", ["plan", SMALL, "--colour"], "--colour"),
    ("usage_error", ["plan", SMALL, "--threads", "0"], "--threads"),
    (
        "cannot_write",
        ["plan", SMALL, "--out", "no/such/folder/plan.json"],
        "no/such/folder",
    ),
    ("instance_error", ["solve", "nowhere.json"], ""),
    ("unsupported", ["compare", SMALL, "--planners", "megatron,"], "commas"),
    ("usage_error", ["compare"], ""),
    ("unsupported", ["provision", OFFERS, "--frontier", "--budget", "1"], "no other"),
    ("instance_error", ["provision", SMALL], "offers"),
    ("instance_error", ["check", "nowhere.json"], "nowhere.json"),
    ("unknown_name", ["list", "colours"], "instances"),
    ("unsupported", ["list", "planners", "--markdown"], ""),
    ("unknown_name", ["fit", "gpt-9", "--gpus", "A100-40G", "--batch", "2"], ""),
    ("instance_error", ["scale", "nowhere.yaml"], ""),
    ("unknown_name", ["rent", "gpt-9", "--tokens", "1B"], ""),
    ("unknown_name", ["schedule", "frenzy/simulator-30", "--policy", "nobody"], ""),
    ("instance_error", ["schedule", SMALL, "--trace", "nowhere.csv"], ""),
    ("unknown_name", ["bench", "no-suite", "--out", "run"], ""),
    ("unsupported", ["bench"], ""),
    ("usage_error", ["assemble", "config.json"], ""),
    (
        "instance_error",
        ["export", "nowhere.json", "--to", "megatron", "--out", "e"],
        "",
    ),
    ("instance_error", ["simulate", "nowhere.json"], ""),
    ("usage_error", ["doctor", "--colour"], ""),
    ("usage_error", ["profile", "gpt2"], ""),
    ("unknown_name", ["import", "no-format", "x.csv"], ""),
    ("instance_error", ["checkpoint", "nowhere"], ""),
    ("instance_error", ["explain", "nowhere.json"], ""),
    ("instance_error", ["run", "nowhere.json", "--steps", "1"], ""),
    ("usage_error", ["run", "nowhere.json"], ""),
    ("instance_error", ["serve", "nowhere.yaml"], ""),
    ("instance_error", ["predict", "nowhere.json"], ""),
    ("instance_error", ["calibrate", "nowhere.csv"], ""),
    ("instance_error", ["recover", "nowhere.json", SMALL], ""),
    ("usage_error", ["replay", "nowhere.json", SMALL, "--series", "a"], ""),
    ("instance_error", ["submit", "nowhere.yaml", "--engine", "local"], ""),
    ("instance_error", ["queue", "--queue", "nowhere"], ""),
    ("instance_error", ["status", "--queue", "nowhere"], ""),
    ("instance_error", ["cancel", "1", "--queue", "nowhere"], ""),
    ("instance_error", ["logs", "1", "--queue", "nowhere"], ""),
    ("usage_error", ["dance"], "dance"),
    ("unsupported", ["compare", SMALL, "--out", "report.doc"], ".html, .md, .csv"),
    ("unknown_name", ["solve", SMALL, "--method", "provisioning"], "provisioning"),
    ("instance_error", ["provision", OFFERS, *BOTH], "give one"),
]


def the_error(told: Any) -> dict[str, Any]:
    """The error of the only document on stdout, which has five fields."""
    document = json.loads(told.stdout)
    found: dict[str, Any] = document.pop("error")
    assert document == {}
    assert found.keys() == {"kind", "message", "file", "field", "exit_code"}
    assert found["exit_code"] == told.exit_code
    return found


def test_every_command_has_a_case_of_bad_input() -> None:
    group: Any = typer.main.get_command(cli.app)
    assert {words[0] for _, words, _ in BAD} - {"dance"} == set(group.commands)


@pytest.mark.parametrize(("kind", "words", "said"), BAD, ids=lambda x: " ".join(x))
def test_bad_input_is_one_document(
    kind: str,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    told = hetopt(*words, "--json")
    found = the_error(told)
    assert (found["kind"], found["exit_code"]) == (kind, 2)
    assert found["message"]
    assert said in told.stderr.replace("\n", " ")
    assert isinstance(told.exception, SystemExit)
    assert hetopt(*words).stdout == ""


def test_an_error_carries_its_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "grouping.json"
    path.write_text('{"problem": "device_grouping", "gpus": [{"type": "A"}]}')
    found = the_error(hetopt("solve", str(path), "--json"))
    assert (found["file"], found["field"]) == (str(path), "gpus[0].count")
    assert f"{path}: gpus[0].count: missing" in found["message"]
    missing = the_error(hetopt("plan", "--json"))
    assert (missing["file"], missing["field"]) == (None, "instance")
    assert the_error(hetopt("plan", SMALL, "--hue", "--json"))["field"] == "--hue"


@pytest.mark.parametrize(
    ("raised", "kind", "code", "file"),
    [
        (BoundContradicted("bound 3 contradicts"), "internal_error", 1, None),
        (OSError(28, "No space left", "a"), "system_error", 2, "a"),
        (KeyboardInterrupt(), "interrupted", 4, None),
    ],
    ids=lambda part: str(part),
)
def test_what_ends_a_command_is_a_document(
    raised: BaseException,
    kind: str,
    code: int,
    file: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(*args: Any, **kwargs: Any) -> Any:
        raise raised

    monkeypatch.setattr(planning, "plan", ended)
    found = the_error(hetopt("plan", SMALL, "--json"))
    assert (found["kind"], found["exit_code"], found["file"]) == (kind, code, file)


def test_an_unforeseen_bug_is_a_document_beside_its_traceback() -> None:
    code = (
        "import sys; import hetopt; from hetopt import cli; hetopt.plan = None;"
        f"sys.argv = ['hetopt', 'plan', '{SMALL}', '--json']; cli.main()"
    )
    told = ran(sys.executable, "-c", code)
    assert json.loads(told.stdout)["error"]["kind"] == "internal_error"
    assert told.returncode == 1
    assert "Traceback" in told.stderr
    assert "please report it" in told.stderr


def test_kinds_of_errors_are_the_names_of_their_classes() -> None:
    classes = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.HetoptError)
    ]
    for one in classes:
        if not issubclass(one, errors.InternalError):
            assert one.kind.replace("_", "") == one.__name__.lower()
