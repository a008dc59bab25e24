"""`hetopt doctor`: a solver that is missing or wrong is told, and the exit says so."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from hetopt import _kernels, api, cli, registry
from hetopt.cli import doctor
from hetopt.errors import BackendMissing


def test_every_back_end_is_tried_and_works() -> None:
    told = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert [one["name"] for one in found["backends"]] == registry.names("backends")
    assert all(one["healthy"] and one["version"] for one in found["backends"])
    assert found["threads"] >= 1
    assert "works" in CliRunner().invoke(cli.app, ["doctor"]).stdout


def test_a_missing_solver_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: Any, backend: str, **__: Any) -> Any:
        raise BackendMissing(backend, "pyscipopt")

    monkeypatch.setattr(api, "solve", missing)
    assert all("pip install" in str(one.reason) for one in doctor.findings())
    told = CliRunner().invoke(cli.app, ["doctor"])
    assert told.exit_code == 2
    assert "not installed" in told.stdout


def test_a_solver_that_is_wrong_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_EXPECTED", 2)
    for one in doctor.findings():
        assert not one.healthy
        assert "found 3 (optimal), expected 2" in str(one.reason)


def test_a_solver_that_has_no_time_is_not_called_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_LIMIT_S", 1e-9)
    late = [one for one in doctor.findings() if not one.healthy]
    assert late
    for one in late:
        assert "the machine is busy; try again" in str(one.reason)
        assert "install" not in str(one.reason)


def test_completion_of_the_shell_can_be_shown() -> None:
    told = CliRunner().invoke(cli.app, ["--help"])
    assert "--show-completion" in told.stdout


def test_what_proofs_run_by_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernels() -> Any:
        told = CliRunner().invoke(cli.app, ["doctor", "--json"])
        return json.loads(told.stdout)["kernels"]

    built = _kernels.Core("compiled", "C, built with hetopt")
    monkeypatch.setattr(_kernels, "core", object())
    monkeypatch.setattr(_kernels, "status", built)
    assert kernels() == {"active": "compiled", "reason": "C, built with hetopt"}
    told = CliRunner().invoke(cli.app, ["doctor"])
    assert "core: compiled (C, built with hetopt)\n" in told.stdout
    assert "kernels" not in told.stdout  # one core, one line
    off = _kernels.Core("python", "not built: install a C compiler and hetopt again")
    monkeypatch.setattr(_kernels, "core", None)
    monkeypatch.setattr(_kernels, "status", off)
    assert kernels() == {"active": "numpy", "reason": off.reason}


def test_the_core_that_searches_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    off = _kernels.Core("python", "not built: install a C compiler and hetopt again")
    monkeypatch.setattr(_kernels, "status", off)
    told = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert json.loads(told.stdout)["core"] == off._asdict()
    assert f"core: python ({off.reason})" in " ".join(
        CliRunner().invoke(cli.app, ["doctor"]).stdout.split()
    )


@pytest.mark.parametrize(("word", "active"), [("off", "python"), ("on", "")])
def test_the_core_can_be_switched_off(word: str, active: str) -> None:
    code = "from hetopt._kernels import core, status; print(status.active, core)"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HETOPT_CORE": word},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.startswith(active or _kernels.status.active)
    assert ("None" in told) == (word == "off" or _kernels.core is None)


def test_a_plan_ends_with_a_word_on_kernels_that_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["plan", "tiny/two-nodes", "--planner", "megatron"]
    off = _kernels.Core("python", "not built: install a C compiler and hetopt again")
    with monkeypatch.context() as without:
        without.setattr(_kernels, "core", None)
        without.setattr(_kernels, "status", off)
        told = CliRunner().invoke(cli.app, words)
        assert "kernels are not compiled" in told.stderr
        assert told.stderr.splitlines()[-1].endswith("hetopt again")
        assert "kernels" not in CliRunner().invoke(cli.app, [*words, "--json"]).stderr
    monkeypatch.setattr(_kernels, "core", _kernels.core or object())
    assert "kernels" not in CliRunner().invoke(cli.app, words).stderr
