"""Four ranks for all tests of the folder: they start once."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package")
def four() -> Iterator[object]:
    """Processes that call a function as the ranks of a job."""
    pytest.importorskip("torch")
    from executed import ranks

    with ranks(4) as made:
        yield made
