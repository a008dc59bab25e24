"""Back ends and statements are found in their folders: a new one is tested at once."""

from typing import Any

import pytest

from hetopt import registry


@pytest.fixture(params=registry.names("backends"))
def backend(request: pytest.FixtureRequest) -> Any:
    """Every back end."""
    return request.param


@pytest.fixture(params=registry.names("formulations"))
def formulation(request: pytest.FixtureRequest) -> Any:
    """Every statement."""
    return request.param
