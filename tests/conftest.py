"""What all tests share: profiles of properties, fixtures of entries, the quick run.

Back ends and statements are found in their folders: a new one is tested at once.
"""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hetopt import registry

# Bytecode is kept even where the environment says not to: without it pytest rewrites
# every assertion in each worker, and each command in a process compiles the house.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# As on the command line: threads for small matrices take more time than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell ignores Ctrl-C for what it starts in the background, and so would tests of it
# and the commands that they start: each would last until its limit.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: New objects after which unreachable ones are looked for, as on the command line: a
#: look at Python's usual 700 takes a tenth of the time of tests that make many.
NEW_OBJECTS = 50_000

# The same examples in every run, judged by no clock: a busy machine changes nothing.
settings.register_profile(
    "hetopt",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Twenty times as many, new ones in every run: `pytest --hypothesis-profile long`.
settings.register_profile(
    "long",
    settings.get_profile("hetopt"),
    derandomize=False,
    max_examples=2_000,
    print_blob=True,
)
settings.load_profile("hetopt")

#: What `-m quick` runs: the floors of the house below search, and a proof by hand.
QUICK = (
    *("text", "schema", "catalogue", "costs", "problems"),
    *("exact/test_worked_example.py", "formats/test_exporters.py"),
)
#: What lies there and takes as long as all else together.
LONG = (
    *("catalogue/test_public_models.py", "costs/runs", "costs/test_lora_plans.py"),
    *("costs/test_marp.py", "costs/test_optimisers.py", "costs/test_ports.py"),
)
#: What drives pages in a browser.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_HERE = Path(__file__).parent


@cache
def _is_quick(path: Path) -> bool:
    """Return whether a file is one of the quick run."""
    in_quick = any(path.is_relative_to(_HERE / name) for name in QUICK)
    return in_quick and not any(path.is_relative_to(_HERE / name) for name in LONG)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, what the quick run does not want."""
    if config.getoption("markexpr") != "quick" or collection_path.is_dir():
        return None
    return None if _is_quick(collection_path) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the quick run, but for the slow ones among them."""
    for item in items:
        asked = item.get_closest_marker("slow") or item.get_closest_marker("targets")
        if asked is None and _is_quick(item.path):
            item.add_marker("quick")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for unreachable objects: all that it makes stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker a run of tests in their order, and the idle one what is left.

    What a module builds once is then built by one worker, not by all of them.
    """
    from xdist.scheduler import WorkStealingScheduling

    if config.getoption("dist") != "load":
        return None
    return WorkStealingScheduling(config, log)


@pytest.fixture(params=registry.names("backends"))
def backend(request: pytest.FixtureRequest) -> Any:
    """Every back end."""
    return request.param


@pytest.fixture(params=registry.names("formulations"))
def formulation(request: pytest.FixtureRequest) -> Any:
    """Every statement."""
    return request.param


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, where there is one."""
    named = (os.environ.get("HETOPT_CHROMIUM"), *map(shutil.which, BROWSERS))
    if not (program := next(filter(None, named), None)):
        pytest.skip("no Chromium: set HETOPT_CHROMIUM")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as play:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = play.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()
