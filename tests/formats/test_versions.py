"""Every target says which releases it was held against, and what is installed."""

import json
from importlib import metadata

from exporter_plans import EVEN, instance
from typer.testing import CliRunner

from hetopt import cli
from hetopt.formats import exporting
from hetopt.formats.contract import Held

HELD = {name: exporting.target_named(name).held for name in exporting.names()}


def test_every_target_has_its_releases() -> None:
    assert all(held.held and held.oldest for held in HELD.values())


def test_explain_tells_the_releases() -> None:
    rows = {row["name"]: row for row in exporting.explain(instance(), EVEN)}
    assert rows["torchtitan"]["held_against"] == list(HELD["torchtitan"].held)
    assert rows["torchtitan"]["oldest"] == "0.2.2"


def test_doctor_tells_what_is_installed() -> None:
    shown = CliRunner().invoke(cli.app, ["doctor", "--targets", "--json"])
    assert shown.exit_code == 0
    rows = {row["target"]: row for row in json.loads(shown.stdout)["targets"]}
    assert set(rows) == set(HELD)
    for name, row in rows.items():
        if HELD[name].package is not None:
            assert row["installed"] == HELD[name].installed
    assert Held("x", "1", ("1",), "pytest").installed == metadata.version("pytest")
    assert Held("x", "1", ("1",), "no-such-package-here").installed is None
    table = CliRunner().invoke(cli.app, ["doctor", "--targets"])
    assert "DeepSpeed" in table.stdout
