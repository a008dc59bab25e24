"""The files around a release: what builds, what is cited, what people fill in."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from places import ROOT, module_of

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


# --- what is cited, what is filled in ---------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_a_limit(path: Path) -> None:
    flow = yaml.safe_load(path.read_text("utf-8"))
    assert flow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in flow["jobs"].values())


def test_commands_that_forms_and_pages_name_are_there() -> None:
    from typer.main import get_command

    from hetopt import cli

    there = set(get_command(cli.app).commands)  # type: ignore[attr-defined]
    pages = [ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", ROOT / "Dockerfile"]
    named = {
        name
        for path in (*FORMS, *WORKFLOWS, *pages)
        for name in re.findall(r"(?:`|: )hetopt ([a-z]+)", path.read_text("utf-8"))
    }
    assert named
    assert named - there == set()


#: Modules that may speak to other machines, by the line of SECURITY.md that says so.
NETWORKED = {
    "bench/running": "Dask",
    "formats/ray": "What is exported",
    "queueing/engines/local": "",
    "queueing/engines/ray": "Ray's head",
    "serving/app": "hetopt serve",
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


def test_every_package_that_is_installed_with_ours_declares_a_licence() -> None:
    licences = module_of(ROOT / ".github" / "licences.py")
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
