"""The wheel, made of the source archive, is complete: it plans from an empty folder.

And a package of others, built and installed as a wheel beside it, is found by its name.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from command_line import ran
from disk import put
from places import ROOT

SHIPPED = ("hetopt", "formulations", "instances")
KINDS = {".py", ".typed", ".j2", ".yaml", ".json", ".toml"}
KINDS |= {".html", ".css", ".js", ".svg"}
UNSHIPPED = ("ruff.toml", "box.svg", "column.svg")  # the latter are of a page
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BUILD = "import setuptools.build_meta as b, sys; b.build_{}(sys.argv[1])"
RUN = "import hetopt\nfrom hetopt.cli import main\nprint(hetopt.__file__)\nmain()\n"
LIST = (
    "import json, sys\nfrom hetopt import list_entries\n"
    "print(json.dumps([list_entries(kind).to_json() for kind in sys.argv[1:]]))\n"
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    source = tmp_path_factory.mktemp("source")
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in SHIPPED:
        shutil.copytree(ROOT / folder, source / folder, ignore=junk)
    for path in (*ROOT.glob("*.*"), ROOT / "LICENSE"):
        if path.is_file():
            shutil.copy(path, source / path.name)
    built = tmp_path_factory.mktemp("archive")
    build("sdist", source, built)
    return next(built.glob("hetopt-*.tar.gz"))


def build(kind: str, source: Path, out: Path, **settings: str) -> None:
    """Build a wheel or a source archive, as pip does; `settings` are of its process."""
    subprocess.run(
        [sys.executable, "-c", BUILD.format(kind), out],
        cwd=source,
        env={**os.environ, **settings},
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def compiled(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source archive, compiled in a hurry."""
    quick = put(
        tmp_path_factory.mktemp("compiler") / "cc", '#!/bin/sh\nexec cc "$@" -O0\n'
    )
    quick.chmod(0o755)
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    (source,) = place.iterdir()
    made = wheel(source, tmp_path_factory, CC=str(quick))
    (core,) = (source / "hetopt" / "_kernels").glob("_core.*")  # first on the path
    assert core.read_bytes() == read(made)[f"hetopt/_kernels/{core.name}"]
    return made


def wheel(
    source: Path, tmp_path_factory: pytest.TempPathFactory, **settings: str
) -> Path:
    """The wheel of a folder; `settings` are of its build."""
    built = tmp_path_factory.mktemp("built")
    build("wheel", source, built, **settings)
    return next(built.glob("*.whl"))


def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but what a wheel holds."""
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


@pytest.fixture(scope="module")
def site(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    return unpacked(compiled, tmp_path_factory)


def run(site: Path, code: str, folder: Path, *words: str) -> str:
    """Run a script that lies outside `folder`, on the unpacked wheel."""
    told = ran(
        *(sys.executable, put(site.parent / "script.py", code), *words),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_every_shipped_file_is_in_the_wheel(site: Path) -> None:
    places = {
        "hetopt": site / "hetopt",
        "formulations": site / "hetopt" / "formulations",
        "instances": site / "hetopt" / "instances",
    }
    for folder, place in places.items():
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in KINDS and file.name not in UNSHIPPED:
                assert (place / file.relative_to(ROOT / folder)).is_file(), file


def test_the_wheel_has_nothing_that_only_a_checkout_needs(site: Path) -> None:
    """Neither pages nor C; examples come along, as commands of pages name them."""
    files = [path.relative_to(site) for path in site.rglob("*") if path.is_file()]
    examples = Path("hetopt", "instances", "examples")
    plain = [
        path
        for path in files
        if examples not in path.parents and not path.parts[0].endswith(".dist-info")
    ]
    assert {p.suffix for p in plain if not p.name.startswith("_core.")} == KINDS


def test_the_wheel_plans_and_reports(site: Path, tmp_path: Path) -> None:
    page = tmp_path / "gaps.html"
    words = ("compare", "tiny/two-nodes", "--planners", "megatron", "--out", str(page))
    where, _, told = run(site, RUN, tmp_path, *words).partition("\n")
    assert Path(where).is_relative_to(site)
    assert "megatron" in told
    assert "<svg" in page.read_text(encoding="utf-8")


def test_the_wheel_lists_what_the_checkout_lists(site: Path, tmp_path: Path) -> None:
    """But for the suites that need the checkout."""
    from hetopt import list_entries

    kinds = ("instances", "formulations", "planners", "methods", "backends")
    *told, suites = json.loads(run(site, LIST, tmp_path, *kinds, "suites"))
    assert told == [list_entries(kind).to_json() for kind in kinds]
    names = {suite["name"] for suite in suites}
    assert {"smoke", "exact", "planners", "scale"} <= names
    assert "gaps" not in names


# --- the compiled core -------------------------------------------------------------


def read(wheel: Path) -> dict[str, bytes]:
    """What a wheel holds, by path."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tags(wheel: Path) -> list[str]:
    """The tags of a wheel, and whether its code is for every platform."""
    (told,) = (data for name, data in read(wheel).items() if name.endswith("/WHEEL"))
    return [x for x in told.decode().splitlines() if x.startswith(("Tag", "Root-Is-"))]


def test_a_wheel_is_for_every_python(
    compiled: Path, site: Path, tmp_path: Path
) -> None:
    pure, *named = tags(compiled)
    assert pure == "Root-Is-Purelib: false"
    assert all(tag.startswith("Tag: cp311-abi3-") for tag in named)
    code = "from hetopt._kernels import core; print(core.__file__)"
    assert Path(run(site, code, tmp_path).strip()).is_relative_to(site)


@pytest.mark.slow
def test_a_build_without_a_compiler_asks_for_one(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    code = "import setuptools.build_meta as b; print(b.get_requires_for_build_wheel())"
    for path, wanted in ((os.environ["PATH"], "[]"), (str(tmp_path), "['ziglang']")):
        told = ran(
            *(sys.executable, "-c", code),
            cwd=source,
            env={**os.environ, "PATH": path},
            check=True,
        )
        assert told.stdout.splitlines()[-1] == wanted


# --- what the release says of itself ----------------------------------------------


def test_one_version_is_told_everywhere() -> None:
    version = PROJECT["version"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    changed = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert (cited[1], changed[1]) == (version, version)


# --- a package of others ----------------------------------------------------------

PLUGIN = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "hetopt-by-node"
version = "1.0"
[project.entry-points."hetopt.planners"]
by-node = "by_node.planning"
[tool.setuptools]
packages = ["by_node"]
"""


def test_a_planner_that_comes_as_a_wheel_is_listed_and_plans(
    site: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = tmp_path / "source" / "by_node"
    package.mkdir(parents=True)
    page = (ROOT / "guide" / "plug-ins.md").read_text("utf-8")
    template = re.search(r'```python\n("""All GPUs of a node.*?)```', page, re.S)
    (package / "__init__.py").write_text("")
    (package / "planning.py").write_text(template[1], "utf-8")
    (package.parent / "pyproject.toml").write_text(PLUGIN, "utf-8")
    made = wheel(package.parent, tmp_path_factory)
    theirs = unpacked(made, tmp_path_factory)
    both = f"{site}{os.pathsep}{theirs}"
    script = put(tmp_path / "main.py", "from hetopt.cli import main\nmain()\n")

    def told(*words: str) -> str:
        return ran(
            *(sys.executable, script, *words),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": both},
            check=True,
        ).stdout

    listed = {
        row["name"]: row for row in json.loads(told("list", "planners", "--json"))
    }
    assert "hetopt-by-node" in listed["by_node"]["description"]
    plan = json.loads(told("plan", "tiny/two-nodes", "--planner", "by_node", "--json"))
    assert plan["method"]["name"] == "by_node"
    assert plan["plan"] is not None
