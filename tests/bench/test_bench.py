"""`hetopt bench`: no run is lost, whatever its solves do, and a kill loses no row."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_planners
import pytest
from command_line import typed
from waiting import PATIENCE_S, awaited

from hetopt import registry
from hetopt.bench import journal, process, suites
from hetopt.errors import InstanceError, UnknownName

HETOPT = [sys.executable, "-c", "from hetopt.cli import main; main()"]


@pytest.fixture
def misbehaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment whose children have planners that misbehave."""
    folder = tmp_path / "misbehaving"
    folder.mkdir()
    environment = bench_planners.install(folder)
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    return environment


def suite(path: Path, text: str) -> Path:
    """A suite file with one suite, `mine`."""
    path.write_text(f'[mine]\ndescription = "for a test"\n{text}', encoding="utf-8")
    return path


def group(instances: list[str], methods: list[str], more: str = "") -> str:
    listed = f"instances = {json.dumps(instances)}\nmethods = {json.dumps(methods)}\n"
    return f"[[mine.solve]]\n{listed}{more}"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Rows without what differs from run to run."""
    return [
        {k: v for k, v in row.items() if k not in ("seconds", "commit")}
        for row in journal.read(folder)[1]
    ]


# --- suites ----------------------------------------------------------------------


def test_a_group_is_every_instance_with_every_method(tmp_path: Path) -> None:
    text = group(["tiny/two-nodes", "generated:unequal/8/3..5"], ["exact", "megatron"])
    found = suites.tasks("mine", suite(tmp_path / "s.toml", text))
    assert [(t.instance, t.method) for t in found] == [
        (instance, method)
        for instance in (
            "tiny/two-nodes",
            *(f"generated:unequal/8/{seed}" for seed in (3, 4, 5)),
        )
        for method in ("exact", "megatron")
    ]


def test_words_stand_for_all_of_the_problem(tmp_path: Path) -> None:
    text = group(["tiny/offers"], ["planners"])
    text += group(["generated:queue/3/0"], ["policies"])
    text += group(
        ["generated:partition/9/0"], ["statements"], 'backends = ["backends"]\n'
    )
    found = suites.tasks("mine", suite(tmp_path / "s.toml", text))
    assert {"espresso", "sia_plus", "whale_plus"} <= {t.method for t in found}
    assert {"frenzy", "opportunistic"} <= {t.method for t in found}
    stated = {(t.method, t.backend) for t in found if t.backend}
    assert stated == {
        (name, backend)
        for name in registry.entries_for("formulations", "layer_partition")
        for backend in ("cpsat", "pulp", "scip")
    }


def test_limits_are_those_asked_for_then_of_the_group_then_of_the_suite(
    tmp_path: Path,
) -> None:
    text = "time_limit_s = 7\nmemory_mib = 100\nseeds = [1, 2]\n"
    text += group(["tiny/star"], ["megatron"], "time_limit_s = 3\n")
    more = "wall_limit_s = 500\nmemory_mib = 99\nseeds = [9]\n"
    text += group(["tiny/islands"], ["megatron"], more)
    file = suite(tmp_path / "s.toml", text)
    for asked, limits in (
        (None, [(3, 36, 100, 1), (3, 36, 100, 2), (7, 500, 99, 9)]),
        (20.0, [(20, 70, 100, 1), (20, 70, 100, 2), (20, 513, 99, 9)]),
    ):
        found = suites.tasks("mine", file, asked)
        told = [(t.time_limit_s, t.wall_limit_s, t.memory_mib, t.seed) for t in found]
        assert told == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_limit = 5\n", "mine: time_limit: unknown field"),
        ("threads = 0\n", "mine: threads: found 0, expected a whole number from 1"),
        ("[[mine.solve]]\nmethods = ['exact']\n", r"solve\[0\].instances: missing"),
        (group(["tiny/star"], ["exact", "exact"]), "found twice: tiny/star by exact"),
        ("[[mine.solve]\n", "not TOML"),
        (group(["generated:equal/8/3..2"], ["exact"]), "found 0 seeds, expected 1"),
    ],
)
def test_a_suite_file_that_is_wrong_says_where(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InstanceError, match=message):
        suites.tasks("mine", suite(tmp_path / "s.toml", text))


def test_an_unknown_suite_and_an_unknown_instance_list_what_is_there(
    tmp_path: Path,
) -> None:
    with pytest.raises(UnknownName, match=r"unknown suite 'smoky'.*smoke"):
        suites.tasks("smoky")
    wrong = group(["generated:grouping/6/0"], ["statements"], 'backends = ["scpi"]\n')
    with pytest.raises(UnknownName, match="unknown backend 'scpi'"):
        suites.tasks("mine", suite(tmp_path / "w.toml", wrong))
    with pytest.raises(UnknownName, match=r"unknown instance 'tiny/no\*'"):
        suites.tasks("mine", suite(tmp_path / "s.toml", group(["tiny/no*"], ["exact"])))


@pytest.mark.parametrize("name", sorted(suites.known()))
def test_every_suite_becomes_tasks(name: str) -> None:
    found = suites.tasks(name)
    assert found
    assert all(t.wall_limit_s >= t.time_limit_s for t in found)


# --- one process a solve -----------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "limits", "status", "reason"),
    [
        ("crashes", {}, "crashed", "SIGABRT"),
        ("raises", {}, "crashed", "RuntimeError: the reason that it gave"),
        ("leaves", {}, "crashed", "ended without an answer"),
        ("hangs", {"wall_limit_s": 1.5}, "timeout", "ended after 1.5 s of wall time"),
        ("hoards", {"memory_mib": 300}, "out of memory", "ended at more than 300 MiB"),
        ("absent", {}, "refused", "unknown planner 'absent'"),
    ],
)
def test_a_solve_that_fails_is_a_row_that_says_how(
    method: str,
    limits: dict[str, Any],
    status: str,
    reason: str,
    misbehaving: dict[str, str],
) -> None:
    fields = {"wall_limit_s": 60.0, "instance": "tiny/two-nodes", **limits}
    row = process.run(suites.Task(method=method, **fields))["row"]
    assert row["status"] == status
    assert reason in row["reasons"][0]
    assert row["method"] == method


def _sleepers() -> list[int]:
    """Processes that sleep 600 s, as the planner `forks` starts them."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"import time; time.sleep(600)" in _bytes(path)
    ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- rows on disk ------------------------------------------------------------------

HEADER = {"suite": "mine", "tasks": 3, "started": "now", "load": 1.0}


@pytest.mark.parametrize("torn", [b'{"key": "3", "sta', b'{"key": "3"}', b"\x00" * 9])
def test_a_torn_last_line_is_dropped_and_made_again(
    torn: bytes, tmp_path: Path
) -> None:
    with journal.journal(tmp_path, HEADER, resume=False) as kept:
        kept.add({"key": "1"}, None)
    whole = (tmp_path / journal.ROWS).read_bytes()
    (tmp_path / journal.ROWS).write_bytes(whole + torn)
    with journal.journal(tmp_path, HEADER, resume=True) as kept:
        assert kept.rows == [{"key": "1"}]
        kept.add({"key": "2"}, None)
    assert journal.read(tmp_path)[1] == [{"key": "1"}, {"key": "2"}]


def test_rows_are_not_mixed_with_those_of_another_run(tmp_path: Path) -> None:
    with journal.journal(tmp_path, HEADER, resume=False) as kept:
        kept.add({"key": "1"}, None)
        with (
            pytest.raises(InstanceError, match="another run writing here"),
            journal.journal(tmp_path, HEADER, resume=True),
        ):
            pass
    with (
        pytest.raises(InstanceError, match="go on with --resume"),
        journal.journal(tmp_path, HEADER, resume=False),
    ):
        pass
    later = HEADER | {"started": "later", "load": 0.0, "commit": "another"}
    with journal.journal(tmp_path, later, resume=True) as kept:
        assert len(kept.rows) == 1
        kept.add({"key": "2"}, None)
    assert journal.read(tmp_path)[1][-1] == {"key": "2", "commit": "another"}
    with (
        pytest.raises(InstanceError, match="tasks: found 3, expected 4"),
        journal.journal(tmp_path, HEADER | {"tasks": 4}, resume=True),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no whole line"),
        ("{}\n", "line 1: found no suite"),
        ('{"suite": "x"}\n[1]\n{"key": "1"}\n', "line 2: found no JSON object"),
        ('{"suite": "x"}\n{"rows": 1}\n', "line 2: key: found null"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / journal.ROWS).write_text(text)
    with pytest.raises(InstanceError, match=message):
        journal.read(tmp_path)


# --- runs --------------------------------------------------------------------------


def test_a_kill_loses_the_rows_in_flight_and_no_other(
    tmp_path: Path, misbehaving: dict[str, str]
) -> None:
    methods = ["dawdles", "crashes", "raises"]
    file = suite(tmp_path / "s.toml", group(["tiny/one-gpu"], methods))
    words = ["bench", "mine", "--suites", str(file), "--out"]
    killed = subprocess.Popen(
        [*HETOPT, *words, str(tmp_path / "killed"), "--workers", "2"],
        env=misbehaving,
        stderr=subprocess.DEVNULL,
    )
    _wait_for_lines(tmp_path / "killed" / journal.ROWS, 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = rows_of(tmp_path / "killed")
    assert 1 <= len(before) < 3
    _run([*words, str(tmp_path / "killed"), "--workers", "2", "--resume"])
    _run([*words, str(tmp_path / "whole")])
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")
    assert len(rows_of(tmp_path / "whole")) == 3
    assert all(row in rows_of(tmp_path / "killed") for row in before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_ends_the_solves_and_keeps_the_rows(
    tmp_path: Path, misbehaving: dict[str, str], number: int
) -> None:
    text = group(["tiny/one-gpu"], ["megatron", "forks"])
    file = suite(tmp_path / "s.toml", text)
    before, place = set(_sleepers()), tmp_path / "temporary"
    place.mkdir()
    command = [*HETOPT, "bench", "mine", "--suites", str(file), "--out"]
    run = subprocess.Popen(
        [*command, str(tmp_path / "out")],
        env={**misbehaving, "TMPDIR": str(place)},
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_lines(tmp_path / "out" / journal.ROWS, 2)
    awaited(lambda: set(_sleepers()) - before, "planner that waits")
    run.send_signal(number)
    _, said = run.communicate(timeout=PATIENCE_S)
    if number == signal.SIGKILL:  # the solve's process sees it, and clears up
        awaited(
            lambda: not [*place.iterdir()] and set(_sleepers()) <= before,
            "end of the solve's process",
        )
    else:
        assert run.returncode == 4
        assert "keeps the rows so far; --resume continues" in said
    assert set(_sleepers()) <= before
    assert [row["method"] for row in rows_of(tmp_path / "out")] == ["megatron"]


def _wait_for_lines(path: Path, count: int) -> None:
    awaited(
        lambda: path.exists() and path.read_bytes().count(b"\n") >= count,
        f"{count} lines in {path}",
    )


def _run(words: list[str]) -> None:
    """A run with a row that crashes says so by its exit code."""
    told = typed(*words)
    assert told.exit_code == 1, told.stderr
    assert "2 rows: crashed" in told.stderr
