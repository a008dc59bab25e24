"""The wheel is complete: it plans from an empty folder, and beside the checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from places import ROOT

SHIPPED = ("hetopt", "formulations", "instances")
RUN = "import hetopt\nfrom hetopt.cli import main\nprint(hetopt.__file__)\nmain()\n"
LIST = (
    "import json, sys\nfrom hetopt.cli.listing import entries\n"
    "print(json.dumps([entries(kind) for kind in sys.argv[1:]]))\n"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the unpacked wheel."""
    source = tmp_path_factory.mktemp("source")
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in SHIPPED:
        shutil.copytree(ROOT / folder, source / folder, ignore=junk)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    built = tmp_path_factory.mktemp("built")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", built, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = built.glob("hetopt-*.whl")
    unpacked = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    return unpacked


def run(site: Path, code: str, folder: Path, *words: str) -> str:
    """Run a script that lies outside `folder`, on the unpacked wheel."""
    script = site.parent / "script.py"
    script.write_text(code, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_every_shipped_file_is_in_the_wheel(site: Path) -> None:
    places = {
        "hetopt": site / "hetopt",
        "formulations": site / "hetopt" / "formulations",
        "instances": site / "hetopt" / "instances",
    }
    kinds = {".py", ".typed", ".j2", ".yaml", ".json", ".toml"}
    for folder, place in places.items():
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in kinds and file.name != "ruff.toml":
                assert (place / file.relative_to(ROOT / folder)).is_file(), file


def test_the_wheel_takes_one_top_level_name(site: Path) -> None:
    names = {path.name for path in site.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"hetopt"}


@pytest.mark.parametrize("beside_the_checkout", [False, True])
def test_the_wheel_plans_and_reports(
    site: Path, tmp_path: Path, beside_the_checkout: bool
) -> None:
    folder = ROOT if beside_the_checkout else tmp_path
    page = tmp_path / "gaps.html"
    words = ("compare", "tiny/two-nodes", "--planners", "megatron", "--out", str(page))
    where, _, told = run(site, RUN, folder, *words).partition("\n")
    assert Path(where).is_relative_to(site)
    assert "megatron" in told
    assert "<svg" in page.read_text(encoding="utf-8")


def test_the_wheel_lists_what_the_checkout_lists(site: Path, tmp_path: Path) -> None:
    """But for the suites that need the checkout."""
    from hetopt.cli import listing

    kinds = ("instances", "formulations", "planners", "methods", "backends")
    *told, suites = json.loads(run(site, LIST, tmp_path, *kinds, "suites"))
    assert told == [listing.entries(kind) for kind in kinds]
    names = {suite["name"] for suite in suites}
    assert {"smoke", "exact", "planners", "scale"} <= names
    assert "papers" not in names
