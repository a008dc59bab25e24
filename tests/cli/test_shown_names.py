"""Names in brackets are text: every command shows them as they are written."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from command_line import typed
from exporter_plans import EVEN, instance

from hetopt.cli import output
from hetopt.report import words
from hetopt.report.sheet import Sheet

CLOSING, OPENING, LINK = "[/x]", "[bold]", "[link=x]"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(params=["terminal", "pipe"], autouse=True)
def medium(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both a terminal that is styled and a pipe."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if request.param == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    else:
        monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """An instance, a plan, offers, a problem and a queue with such names."""
    tree = json.loads(instance().model_dump_json(exclude_none=True))
    tree["name"], tree["model"]["name"] = CLOSING, OPENING
    told = json.dumps(tree).replace('"big"', f'"{LINK}"').replace('"a0"', '"a[/x]"')
    plan = json.loads(EVEN.model_dump_json().replace('"a0:', '"a[/x]:'))
    data = json.loads(told)
    offer = {"quota": 4, "usd_per_hour": 1, "peak_tflops": 100, "memory_gib": 80}
    rented = {key: value for key, value in data.items() if key != "cluster"}
    rented["offers"] = [{"gpu": CLOSING, "gbytes_per_s": 1, **offer}]
    rented["search"] = {"micro_batches": 4}
    rented["requirements"] = {"deadline_s": 100000}
    group = {"count": 2, "gflops": 10, "memory_mib": 100}
    jobs = {
        "problem": "job_scheduling",
        "name": CLOSING,
        "cluster": data["cluster"],
        "models": {OPENING: {"spec": data["model"], "sequence_length": 128}},
        "jobs": [
            {"name": CLOSING, "model": OPENING, "batch": 8, "samples": 64}
            | {"submit_s": 0, "gpus": 1}
        ],
    }
    trees = {
        "instance": data,
        "plan": {"instance": data, "plan": plan},
        "offers": rented,
        "problem": {
            "problem": "device_grouping",
            "gpus": [{"type": CLOSING, **group}, {"type": LINK, **group}],
            "minimum_memory_mib": 100,
            "micro_batches": 4,
        },
        "queue": jobs,
    }
    for name, content in trees.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return {name: tmp_path / f"{name}.json" for name in trees}


def shown(*words: str | Path, code: tuple[int, ...] = (0,)) -> str:
    """What a command prints, without styles."""
    told = typed(*words)
    assert told.exit_code in code, (told.output, told.exception)
    return STYLE.sub("", told.output)


COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plan": (("plan", "@instance", "--planner", "megatron"), ("a[/x]", LINK)),
    "compare": (("compare", "@instance", "--planners", "megatron"), (CLOSING,)),
    "check": (("check", "@plan"), ("a[/x]",)),
    "explain": (("explain", "@plan", "--time-limit", "0.2"), (CLOSING, LINK)),
    "simulate": (("simulate", "@plan"), ()),
    "export": (("export", "@plan", "--explain"), ("a[/x]",)),
    "provision": (("provision", "@offers"), (CLOSING,)),
    "frontier": (("provision", "@offers", "--frontier"), (CLOSING,)),
    "solve": (("solve", "@problem"), (CLOSING, LINK)),
    "schedule": (("schedule", "@queue", "--policy", "frenzy"), (LINK,)),
    "fit": (("fit", "@instance"), (CLOSING,)),
    "recover": (("recover", "@plan", "@instance", "--lost", "a[/x]:0"), ("a[/x]",)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_names_in_brackets_as_they_are(
    command: str, files: dict[str, Path]
) -> None:
    given, names = COMMANDS[command]
    told = [str(files[word[1:]]) if word.startswith("@") else word for word in given]
    found = shown(*told)
    for name in names:
        assert name in found


def test_lines_are_neither_markup_nor_emoji_nor_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.show(Sheet("", answer=f"{OPENING} :smile: {CLOSING}"))
    assert STYLE.sub("", capsys.readouterr().out) == "[bold] :smile: [/x]\n"
    assert output.lines("a\x1b[2J\nb\x9b") == "a\\x1b[2J\nb\\x9b"


# --- spreadsheets ------------------------------------------------------------------


def test_a_cell_of_text_is_no_formula_and_a_number_stays_one() -> None:
    for value in ("=cmd()", "+cmd()", "-cmd()", "@cmd()", "=1+1"):
        assert words.cell(value) == f"'{value}"
    for value in ("-1.5", "+2", "a=b", "", 3, -3, -1.5, None, "1e3", "-1e3"):
        assert words.cell(value) == value


def test_a_report_for_spreadsheets_has_no_formula_in_its_names(
    files: dict[str, Path], tmp_path: Path
) -> None:
    tree = json.loads(files["instance"].read_text()) | {"name": "=cmd()"}
    files["instance"].write_text(json.dumps(tree))
    out = tmp_path / "report.csv"
    shown("compare", files["instance"], "--planners", "megatron", "--out", out)
    (row,) = csv.DictReader(io.StringIO(out.read_text()))
    assert row["instance"] == "'=cmd()"
    assert float(row["iteration_us"]) > 0
