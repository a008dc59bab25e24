"""Every command calls the function of its name, and shows what that returns.

The lines are those of `frozen/commands.txt`; a function that a command lacks, or that
answers otherwise, is seen in what was heard of the calls.
"""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from inspect import isfunction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import frozen
import pytest
from command_line import typed
from places import ROOT

import hetopt
from hetopt import cli
from hetopt.findings import Finding

Heard = dict[str, Any]
FUNCTIONS: dict[str, Any] = {
    one.name or one.callback.__name__: one.callback
    for one in cli.app.registered_commands
    if one.callback is not None
}


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """What each function of `hetopt` returned or raised last, in a folder of files."""
    found: Heard = {}

    def listening(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **words: Any) -> Any:
            try:
                found[name] = function(*args, **words)
            except hetopt.HetoptError as error:
                found[name] = error
                raise
            return found[name]

        return called

    for name in hetopt.__all__:
        if isfunction(function := getattr(hetopt, name)):
            monkeypatch.setitem(vars(hetopt), name, listening(name, function))
    shutil.copytree(ROOT / "instances/examples", tmp_path / "instances/examples")
    monkeypatch.chdir(tmp_path)
    return found


def lines(*groups: str) -> list[str]:
    return [x for of, x in frozen.commands() if of in groups and x[:7] == "hetopt "]


def chosen() -> list[str]:
    """The shortest line of each command, and those that make its files."""
    known = lines("readme", "tasks")
    by_length = sorted(known, key=len, reverse=True)
    kept = {line.split()[1]: line for line in by_length}.values()
    named = {word for line in kept for word in line.split()}
    return [x for x in known if x in kept or ("-out" in x and x.split()[-1] in named)]


def test_every_command_has_a_function_of_its_name() -> None:
    for name, function in FUNCTIONS.items():
        is_of_queues = function.__module__ == "hetopt.cli.queueing"
        twin = "Queue" if is_of_queues else function.__name__
        assert twin in hetopt.__all__, name
        assert getattr(hetopt, twin).__doc__, name


def test_a_command_shows_what_the_function_returns(heard: Heard) -> None:
    for line in chosen():
        words = shlex.split(line)[1:]
        shown, found = typed(*words).stdout, heard.popitem()[1]
        assert all(len(row) <= 300 for row in repr(found).splitlines())
        if isinstance(found, Finding):
            assert shown in ("", f"{found}\n"), line
            for drawing in re.findall(r"<svg.*?</svg>", found._repr_html_(), re.S):
                ElementTree.fromstring(drawing.replace("xlink:href", "href"))
        document = json.loads(typed(*words, "--json").stdout)
        found = heard.popitem()[1]
        assert not heard, line
        own = found.to_json() if isinstance(found, Finding) else document
        own = json.loads(json.dumps(own, allow_nan=False))
        if isinstance(own, dict):
            document = {key: document[key] for key in own}
        assert own == document, line


def test_an_error_is_shown_as_the_function_raises_it(heard: Heard) -> None:
    told = 0
    for line in lines("errors"):
        words = shlex.split(line)[1:]
        document = json.loads(typed(*words, "--json").stdout)
        error = heard.pop(FUNCTIONS[words[0]].__name__, None)
        if isinstance(error, hetopt.HetoptError):
            assert document["error"]["message"] == str(error), line
            assert document["error"]["kind"] == error.kind
            told += 1
    assert told >= 8
