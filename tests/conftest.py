"""Back ends and statements are found in their folders: a new one is tested at once."""

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


@pytest.fixture(params=registry.names("backends"))
def backend(request: pytest.FixtureRequest) -> Any:
    """Every back end."""
    return request.param


@pytest.fixture(params=registry.names("formulations"))
def formulation(request: pytest.FixtureRequest) -> Any:
    """Every statement."""
    return request.param
