"""Names have one rule, wherever they come from, and messages that can be printed."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from disk import put
from exporter_plans import instance
from pydantic import TypeAdapter, ValidationError

from hetopt import registry
from hetopt.errors import InstanceError, escaped
from hetopt.formats import importing
from hetopt.scheduling import traces
from hetopt.schema import GpuId, Instance, Name, Record, name_fault
from hetopt.text.complaints import validated
from hetopt.text.parsing import parse_value, yaml_text

NO_NAMES = {
    "newline": ("a\nb", r"'\\n' as character 2"),
    "carriage-return": ("a\r", r"'\\r' as character 2"),
    "escape": ("\x1b[31m", r"'\\x1b' as character 1"),
    "c1-control": ("a\x9b", r"'\\x9b' as character 2"),
    "delete": ("a\x7f", r"'\\x7f' as character 2"),
    "right-to-left": ("ab\u202e", r"'\\u202e' as character 3"),
    "zero-width": ("a\u200bb", r"'\\u200b' as character 2"),
    "tab": ("a\tb", r"'\\t' as character 2"),
    "line-separator": ("a\u2028b", r"'\\u2028' as character 2"),
    "blank-before": (" a", "no blank at the beginning or the end"),
    "blank-after": ("a ", "no blank at the beginning or the end"),
}
HARMLESS = ("a", "A b", "x" * 200, "\N{SKULL}", "größer", "名前", "[/x]", "$(x)", "-o")
PLACES = {
    "name": ("name",),
    "model.name": ("model", "name"),
    "cluster.nodes[0].name": ("cluster", "nodes", 0, "name"),
    "cluster.nodes[0].gpu": ("cluster", "nodes", 0, "gpu"),
}


def with_name(place: tuple[Any, ...], name: str) -> dict[str, Any]:
    tree: Any = json.loads(instance().model_dump_json())
    inner = tree
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = name
    return dict(tree)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("label", NO_NAMES)
def test_a_text_that_is_no_name_is_refused_with_field_character_and_remedy(
    place: str, label: str
) -> None:
    text, told = NO_NAMES[label]
    with pytest.raises(InstanceError, match=told) as caught:
        validated(Instance, with_name(PLACES[place], text), "file.json")
    message = str(caught.value)
    assert message.startswith(f"file.json: {place}: found ")
    assert message.endswith("; remove it")
    assert message.isprintable()


@pytest.mark.parametrize("label", NO_NAMES)
def test_a_type_that_is_no_name_is_refused_as_a_key_too(label: str) -> None:
    tree = with_name(PLACES["name"], "n")
    tree["cluster"]["gpus"][NO_NAMES[label][0]] = tree["cluster"]["gpus"].pop("big")
    with pytest.raises(InstanceError, match=NO_NAMES[label][1]) as caught:
        validated(Instance, tree, "file.json")
    assert "file.json: cluster.gpus." in str(caught.value)
    assert all(line.isprintable() for line in str(caught.value).split("\n"))


@pytest.mark.parametrize("name", HARMLESS)
def test_a_printable_line_is_a_name_and_the_node_of_a_gpu(name: str) -> None:
    assert TypeAdapter(Name).validate_python(name) == name
    assert TypeAdapter(GpuId).validate_python(f"{name}:4095") == f"{name}:4095"
    assert name_fault(name) is None


@pytest.mark.parametrize("text", ["", "x" * 201, "a\ud800", *dict(NO_NAMES.values())])
def test_what_is_no_name_is_no_node_of_a_gpu(text: str) -> None:
    for kind, value in ((Name, text), (GpuId, f"{text}:0")):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(value)
    assert name_fault(text) is not None


def test_a_gpu_with_digits_of_another_script_or_thousands_of_them_is_none() -> None:
    for gpu in ("a:\N{ARABIC-INDIC DIGIT THREE}", "a:" + "9" * 5000, "a:", "a"):
        with pytest.raises(ValidationError):
            TypeAdapter(GpuId).validate_python(gpu)


def records() -> Iterator[type[Record]]:
    """Every record that the files of ours are read as."""
    for module in ("schema", "plans", "runtime.saved", "bench.records"):
        importlib.import_module(f"hetopt.{module}")
    for problem in registry.names("problems"):
        importlib.import_module(f"hetopt.problems.{problem}")
    todo = [Record]
    while todo:
        for kind in todo.pop().__subclasses__():
            yield kind
            todo.append(kind)


NAMING = {
    *("name", "model", "gpu", "node", "job", "job_class", "type", "unit", "place"),
    *("source", "first", "second", "order", "instance", "method"),
}
# Provenance is free text; a task of a suite is made by the program, not read.
FREE = {(kind, "source") for kind in ("Instance", "Assembled", "Data")}
FREE |= {("Task", "instance")}
# So are verdicts of a gate, from the rows of a run.
FREE |= {("Task", "method"), ("Verdict", "instance"), ("Verdict", "method")}


def test_every_field_that_names_something_has_the_rule() -> None:
    texts, without = 0, []
    for kind in records():
        if kind.__module__.startswith(("hetopt.catalogue", "hetopt.formats")):
            continue  # shipped with the program, or names of other tools
        for field, about in kind.model_fields.items():
            if field not in NAMING or "str" not in str(about.annotation):
                continue
            if (kind.__name__, field) in FREE:
                continue
            texts += 1
            adapter = TypeAdapter(about.rebuild_annotation())
            for value in ("a\nb", ("a\nb",), ["a\nb"]):
                try:
                    adapter.validate_python(value)
                except ValidationError:
                    continue
                without.append((kind.__module__, kind.__name__, field))
    assert without == []
    assert texts >= 20


# --- files that were written by others ---------------------------------------------


@pytest.mark.parametrize("job", ["a\x1bb", "x" * 201, "a\u202eb"])
def test_a_job_of_a_trace_that_is_no_name_is_refused_with_its_line(
    job: str, tmp_path: Path
) -> None:
    text = f"job,submit_s,duration_s,gpus\na,0,60,1\n{job},0,60,1\n"
    trace = put(tmp_path / "jobs.csv", text)
    with pytest.raises(InstanceError, match=r"jobs.csv: line 3: job: found") as caught:
        traces.read(trace)
    assert str(caught.value).isprintable()


def test_a_job_whose_long_name_comes_twice_is_numbered_within_the_rule(
    tmp_path: Path,
) -> None:
    text = "job,submit_s,duration_s,gpus\n" + 2 * f"{'x' * 200},0,60,1\n"
    trace = put(tmp_path / "jobs.csv", text)
    cluster = instance().planned_cluster
    names = [one.name for one in traces.queue(trace, cluster, "queue").jobs]
    assert len(set(names)) == 2
    assert all(name_fault(name) is None for name in names)


FOREIGN = {
    "hostfile": ("n\x1b1 slots=2 type=H100\n", "hosts: line 1: host: found"),
    "sinfo": ("n\u200b1 gpu:H100:2\n", "hosts: line 1: host: found"),
    "huggingface": (
        json.dumps({"model_type": "llama", "_name_or_path": "a\nb"}),
        "or give --name NAME",
    ),
}


@pytest.mark.parametrize("format", FOREIGN)
def test_a_foreign_file_with_a_host_or_model_that_is_no_name_is_refused(
    format: str, tmp_path: Path
) -> None:
    text, told = FOREIGN[format]
    path = put(tmp_path / ("config.json" if format == "huggingface" else "hosts"), text)
    options = [] if format == "huggingface" else ["types=H100:100/80"]
    with pytest.raises(InstanceError, match=told) as caught:
        importing.imported(format, [path], options, None)
    assert str(caught.value).isprintable()


def test_the_source_of_what_was_read_can_be_printed(tmp_path: Path) -> None:
    hosts = put(tmp_path / "ho\nsts", "n1 slots=1\n")
    read = importing.imported(
        "hostfile", [hosts], ["gpu=H100-80GB-SXM5"], None
    ).document
    assert read["source"].startswith("hostfile ho\\nsts")


# --- YAML ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("1e3", "yes", "no", "y", "N", "null", "~", "0o17", "0x1f", "1_000", "1:30"),
        *("&a", "*a", "!!python/object", "- a", "a: b", "# a", "{{ }}", "=", "<<"),
        *("2001-01-01", ".inf", "", "'", '"', "[a]", "@a", "`a`", "%a", "a\nb"),
    ],
)
def test_a_text_stays_a_text_in_yaml_whoever_reads_it(text: str) -> None:
    tree = {"a": text, "b": [text], "c": 1e20, "d": 3, "e": True, "f": None}
    written = yaml_text(tree)
    assert parse_value(written, "a.yaml", is_json=False) == tree
    if text in ("1e3", "y", "N", "0o17"):
        assert f"a: '{text}'" in written  # others read a number or a truth else


# --- messages ------------------------------------------------------------------------


def test_no_message_sends_a_terminal_control_characters(tmp_path: Path) -> None:
    tree = with_name(PLACES["name"], "n") | {"odd\x1b[2J\nhetopt: fine": 1}
    tree["source"] = ["\x9b\x07"]
    path = put(tmp_path / "in.json", tree)
    for words in (["plan", str(path)], ["plan", "no\x1b[2Jsuch"], ["check", "\x9b"]):
        told = typed(*words)
        assert told.exit_code == 2
        assert all(line.isprintable() for line in told.output.splitlines())
        assert "hetopt: fine" not in told.output.splitlines()


def test_unprintable_characters_are_escaped_and_all_others_stay() -> None:
    assert escaped("a\n\x1b\x9b\u202e\ud800ü\N{SKULL}") == (
        r"a\n\x1b\x9b\u202e\ud800" + "ü\N{SKULL}"
    )
