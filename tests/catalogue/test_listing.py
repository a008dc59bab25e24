"""`hetopt list gpus` and `list machines`: every entry, with what the catalogue says."""

import json
from typing import Any

from typer.testing import CliRunner

from hetopt import catalogue, cli

WIDE = {"COLUMNS": "200"}


def listed(kind: str) -> tuple[dict[str, dict[str, Any]], list[list[str]]]:
    """The document's entries by name, and the words of the table's lines."""
    told = CliRunner().invoke(cli.app, ["list", kind, "--json"])
    shown = CliRunner().invoke(cli.app, ["list", kind], env=WIDE)
    assert (told.exit_code, shown.exit_code) == (0, 0)
    rows = {row["name"]: row for row in json.loads(told.stdout)}
    return rows, [line.split() for line in shown.stdout.splitlines()]


def test_cards_are_listed_with_their_figures_and_machines() -> None:
    rows, lines = listed("gpus")
    assert list(rows) == list(catalogue.gpus())
    shown = {words[0]: words for words in lines if words}
    for name, card in catalogue.gpus().items():
        assert rows[name]["tflops"] == card.tflops
        assert rows[name]["description"] == card.source
        machine = catalogue.machine(name)
        assert rows[name]["machine"] == machine.name
        assert shown[name][-1] == machine.name
        assert shown[name][3] == f"{card.peak_tflops:.6g}"
        assert ("fp4" in card.tflops) == (shown[name][5] != "–")
        for spelling in rows[name]["also"]:
            assert catalogue.find_gpu(spelling) == card


def test_machines_are_listed_with_their_cards() -> None:
    rows, lines = listed("machines")
    assert list(rows) == list(catalogue.machines())
    shown = {words[0]: words for words in lines if words}
    for name, made in catalogue.machines().items():
        assert rows[name]["cards"] == [one.card for one in made]
        for one in made:
            assert rows[name]["link_gbytes_per_s"][one.card] == one.link_gbytes_per_s
        assert shown[name][1:3] == [str(made[0].gpus), str(made[0].domain)]
        assert rows[name]["adapters"] == made[0].adapters
