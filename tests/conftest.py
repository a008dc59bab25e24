"""What all tests share: profiles of properties, fixtures of entries, the quick run.

Back ends and statements are found in their folders: a new one is tested at once.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hetopt import registry

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
    *("text", "schema", "catalogue", "costs", "problems", "stages"),
    *("exact/test_worked_example.py", "formats/test_exporters.py"),
)
_HERE = Path(__file__).parent


def _is_quick(path: Path) -> bool:
    """Return whether a file is one of the quick run."""
    return any(path.is_relative_to(_HERE / name) for name in QUICK)


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


@pytest.fixture(params=registry.names("backends"))
def backend(request: pytest.FixtureRequest) -> Any:
    """Every back end."""
    return request.param


@pytest.fixture(params=registry.names("formulations"))
def formulation(request: pytest.FixtureRequest) -> Any:
    """Every statement."""
    return request.param
