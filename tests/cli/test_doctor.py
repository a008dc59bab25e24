"""`hetopt doctor`: a solver that is missing or wrong is told, and the exit says so."""

from typing import Any

import pytest
from command_line import document, typed

import hetopt
from hetopt import registry
from hetopt._kernels import core
from hetopt.api import solvers, solving
from hetopt.errors import BackendMissing


def test_every_back_end_is_tried_and_works() -> None:
    found = document("doctor")
    assert [one["name"] for one in found["backends"]] == registry.names("backends")
    assert all(one["healthy"] and one["version"] for one in found["backends"])
    assert found["threads"] >= 1
    kernels = {"active": "compiled", "reason": f"loaded {core.__file__}"}
    assert found["kernels"] == kernels
    assert "works" in typed("doctor").stdout


def test_a_missing_solver_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: Any, backend: str, **__: Any) -> Any:
        raise BackendMissing(backend, "pyscipopt")

    monkeypatch.setattr(solving, "solve", missing)
    found = hetopt.doctor().backends
    assert all("pip install" in str(one.reason) for one in found)
    told = typed("doctor")
    assert told.exit_code == 2
    assert "not installed" in told.stdout


def test_a_solver_that_is_wrong_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "_EXPECTED", 2)
    for one in hetopt.doctor().backends:
        assert not one.healthy
        assert "found 3 (optimal), expected 2" in str(one.reason)


def test_a_solver_that_has_no_time_is_not_called_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solvers, "_LIMIT_S", 1e-9)
    late = [x.reason for x in hetopt.doctor().backends if not x.healthy]
    assert late
    for reason in late:
        assert "the machine is busy; try again" in reason
        assert "install" not in reason
