"""Back ends and statements are found in their folders: a new one is tested at once."""

from typing import Any

import pytest
from hypothesis import settings

from hetopt import registry

# The same examples in every run; new ones are drawn by the soak (`tests/soak.py`).
settings.register_profile("hetopt", derandomize=True, deadline=None)
settings.load_profile("hetopt")


@pytest.fixture(params=registry.names("backends"))
def backend(request: pytest.FixtureRequest) -> Any:
    """Every back end."""
    return request.param


@pytest.fixture(params=registry.names("formulations"))
def formulation(request: pytest.FixtureRequest) -> Any:
    """Every statement."""
    return request.param
