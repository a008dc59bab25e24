"""The page of commands is made from the command line, and tells every option."""

import json
import re
from typing import Any

import pytest
from command_line import typed
from places import ROOT
from typer.main import get_command

from hetopt import cli, formats
from hetopt.cli import listing as commands
from hetopt.formats.importing import (
    assumptions,
    calibrating,
    clusters,
    finetuning,
    listing,
)
from hetopt.report.listing import page
from hetopt.schema.targets import TARGETS

PAGE = (ROOT / "hetopt" / "cli" / "REFERENCE.md").read_text("utf-8")
ROWS = {row["name"]: row for row in commands.rows(cli.app)}
COMMANDS: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]


def run(*words: str) -> Any:
    return typed("list", *words)


def test_the_page_is_what_the_command_writes() -> None:
    again = "run `hetopt list commands --markdown > hetopt/cli/REFERENCE.md`"
    assert page("commands", ROWS.values()) == PAGE, again
    assert run("commands", "--markdown").stdout == PAGE


def test_the_command_lists_the_commands() -> None:
    assert json.loads(run("commands", "--json").stdout) == [*ROWS.values()]
    shown = run("commands").stdout
    assert all(re.search(rf"^{name} ", shown, re.M) for name in ROWS)
    assert "--" not in shown  # the options are in the page, and in --help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_row_and_says_what_it_is(name: str) -> None:
    section = PAGE.partition(f"\n## hetopt {name}\n")[2].partition("\n## ")[0]
    shown = [one for one in COMMANDS[name].params if not one.hidden]
    table = re.findall(r"^\| `(.+?)` \| (.+?) \| (.*?) \|$", section, re.M)
    assert len(table) == len(shown)
    for param in shown:
        if param.param_type_name == "option":
            assert any(param.opts[0] in re.split(r"[ ,]+", row[0]) for row in table)


@pytest.mark.parametrize("name", ROWS)
def test_every_command_is_described_with_an_example(name: str) -> None:
    assert ROWS[name]["description"].endswith((".", "?"))
    assert f"hetopt {name}" in ROWS[name]["details"]


@pytest.mark.parametrize(
    ("command", "option", "names"),
    [
        ("plan", "--for", [*TARGETS]),
        ("export", None, [*formats.exporters()]),
        ("assemble", "--from", [*listing.FORMATS]),
        (
            "assemble",
            "--option",
            [
                *(*clusters.OPTIONS, *assumptions.OPTIONS, *finetuning.OPTIONS),
                *calibrating.OPTIONS,
            ],
        ),
    ],
)
def test_lists_in_help_are_those_of_the_code(
    command: str, option: str | None, names: list[str]
) -> None:
    texts = (p.help for p in COMMANDS[command].params if option in p.opts)
    (told,) = [ROWS[command]["details"]] if option is None else texts
    assert {*names} <= {*re.findall(r"\w+", told)}
