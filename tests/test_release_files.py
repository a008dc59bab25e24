"""The files around a release: what builds, what is cited, what people fill in."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INPUTS = {"markdown", "input", "textarea", "dropdown", "checkboxes"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


# --- the image -------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with lines that go on joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    parts = [line.partition(" ") for line in lines if line.strip()]
    return [(word, rest) for word, _, rest in parts]


def stages() -> list[list[tuple[str, str]]]:
    made: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            made.append([])
        made[-1].append((word, rest))
    return made


def test_the_image_does_not_run_as_root() -> None:
    _, run = stages()
    words = [word for word, _ in run]
    users = [rest for word, rest in run if word == "USER"]
    assert users
    assert not {user.partition(":")[0] for user in users} & {"root", "0"}
    assert words.index("USER") < words.index("ENTRYPOINT")
    entries = [rest for word, rest in run if word in ("ENTRYPOINT", "CMD")]
    assert all(rest.startswith("[") for rest in entries)  # signals reach the program


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    build, _ = stages()
    sources = [
        name
        for word, rest in build
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    ]
    wanted = {"hetopt", "formulations", "instances", "pyproject.toml", "setup.py"}
    assert wanted <= set(sources)
    assert [name for name in sources if not (ROOT / name).exists()] == []
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert kept == set(sources)


def test_the_image_is_built_and_run_as_the_installation_page_says() -> None:
    page = (ROOT / "guide" / "installation.md").read_text("utf-8")
    shown = re.findall(r"(?m)^docker .*$", page)
    head = (ROOT / "Dockerfile").read_text("utf-8").partition("FROM ")[0]
    assert [f"# {line}" for line in shown] == head.splitlines()
    assert len(shown) == 2


# --- what is cited, what is filled in ---------------------------------------------


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one(path: Path) -> None:
    form = read(path)
    if path.stem == "config":
        assert set(form) <= {"blank_issues_enabled", "contact_links"}
        return
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    for field in form["body"]:
        assert field["type"] in INPUTS
        assert field["attributes"]["label"]
    needed = [one.get("validations", {}).get("required") for one in form["body"]]
    assert any(needed)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_a_limit(path: Path) -> None:
    flow = read(path)
    assert flow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in flow["jobs"].values())


def test_commands_that_forms_and_pages_name_are_there() -> None:
    from typer.main import get_command

    from hetopt import cli

    there = set(get_command(cli.app).commands)  # type: ignore[attr-defined]
    texts = [*FORMS, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", ROOT / "Dockerfile"]
    named = {
        name
        for path in texts
        for name in re.findall(r"`hetopt ([a-z]+)", path.read_text("utf-8"))
    }
    assert named
    assert named - there == set()


#: Modules that may speak to other machines, by the line of SECURITY.md that says so.
NETWORKED = {
    "bench/running": "Dask",
    "formats/ray": "What is exported",
    "measuring/detecting": "",  # the name of this host
    "queueing/engines/local": "",
    "queueing/engines/ray": "Ray's head",
    "serving/hosts": "hetopt serve",
    "serving/server": "hetopt serve",
    "solving/dask": "Dask",
}


def test_what_speaks_to_other_machines_is_said() -> None:
    library = "socket|ssl|urllib.request|http.client|requests|httpx|ray|distributed"
    asked = re.compile(
        rf"(?m)^\s*(?:import|from) (?:{library})\b"
        rf"|import_module\(\"(?:{library})\"\)"
    )
    found = {
        path.relative_to(ROOT / "hetopt").with_suffix("").as_posix()
        for path in (ROOT / "hetopt").rglob("*.py")
        if asked.search(path.read_text("utf-8"))
    }
    assert found == set(NETWORKED)
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    assert [words for words in NETWORKED.values() if words not in page] == []


# --- habits -----------------------------------------------------------------------


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hooks_run_what_is_checked() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    entries = {
        hook["entry"].removesuffix(" --force-exclude") for hook in local["hooks"]
    }
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    commands = {line.partition(" > ")[0] for line in lines}
    checked = {line for line in commands if line.startswith(("ruff", ".ci/"))}
    assert checked == {"ruff check .", "ruff format --check .", ".ci/types"}
    assert entries == {"ruff check", "ruff format", ".ci/types"}
    assert os.access(ROOT / ".ci" / "types", os.X_OK)


def test_floors_of_coverage_are_of_packages_and_hold_by_lines() -> None:
    floors = loaded(ROOT / "tests" / "coverage_floors.py")
    assert [name for name in floors.FLOORS if not (ROOT / name).is_dir()] == []
    lines = {"covered_lines": 90, "num_statements": 100}
    files = {
        "hetopt/costs/runs/a.py": {"summary": lines},
        "hetopt/costs/b.py": {"summary": {"covered_lines": 60, "num_statements": 60}},
        "hetopt/gaps.py": {"summary": lines},
    }
    found = floors.shares(files)
    assert found == {"hetopt/costs": (150, 160), "hetopt": (90, 100)}
    assert floors.below(found) == ["hetopt/bounds", "hetopt/costs", "hetopt/exact"]
    enough = {name: (100, 100) for name in floors.FLOORS}
    assert floors.below(enough) == []
    assert "| hetopt/costs | 160 | 93.8% | 96% |" in floors.table(found)


def test_a_test_that_fails_hides_no_coverage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    floors = loaded(ROOT / "tests" / "coverage_floors.py")
    reached = {"summary": {"covered_lines": 1, "num_statements": 1}}
    files = {f"{name}/a.py": reached for name in floors.FLOORS}

    def ran(command: list[str], **settings: Any) -> Any:
        code = 1 if "pytest" in command else 0
        assert not (code and settings["check"])
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(floors.subprocess, "run", ran)
    monkeypatch.setattr(floors, "read", lambda data: files)
    monkeypatch.setattr(floors.sys, "argv", ["coverage_floors.py", "-n", "2"])
    assert floors.main() == 1
    assert "| hetopt/costs | 1 | 100.0% |" in capsys.readouterr().out


def test_every_package_that_is_installed_with_ours_declares_a_licence() -> None:
    licences = loaded(ROOT / ".github" / "licences.py")
    packages = licences.closure("hetopt")
    names = {licences.canonical(one.metadata["Name"]) for one in packages}
    assert {"hetopt", "pyscipopt", "ortools", "pulp", "numpy", "pydantic"} <= names
    assert [n for n in names if n in ("pytest", "mkdocs", "torch", "ruff")] == []
    # Typer wants it on Windows alone; mkdocs, of the extra `test`, wants it everywhere.
    assert ("colorama" in names) == (sys.platform == "win32")
    told = {one.metadata["Name"]: licences.licence(one) for one in packages}
    assert [name for name, words in told.items() if words == "not declared"] == []
    strict = re.compile(r"(?<!L)GPL")
    assert [name for name, words in told.items() if strict.search(words)] == []
    assert set(licences.NATIVE) <= {licences.canonical(name) for name in told}
    bill = licences.bill(packages)
    assert bill["metadata"]["component"]["name"] == "hetopt"
    assert len(bill["components"]) == len(packages) - 1


# --- the command that passes the tests -------------------------------------------


def test_what_the_readme_promises_is_what_is_checked() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    promised = re.findall(r"(?m)^pip install .*\[test\].* pytest.*$", readme)
    assert len(promised) == 1
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == promised[0]
