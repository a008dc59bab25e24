"""The Dask cluster at an address, where one is asked for: `hetopt[dask]`."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .. import registry
from ..errors import BackendMissing, Unsupported

PATIENCE_S = 20  # for a scheduler to answer


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at that address, whose workers have our hetopt.

    `BackendMissing` without Dask; `Unsupported` where nothing answers at the address,
    or where a worker that is there has no hetopt, or another version.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise BackendMissing("dask", "'hetopt[dask]'") from None
    try:
        client = distributed.Client(address, timeout=PATIENCE_S)
    except (OSError, ValueError) as error:
        raise Unsupported(
            f"--dask {address}: found no scheduler ({error}), expected one to "
            "answer; start `dask scheduler` there"
        ) from None
    with client:
        _refuse_others(client, address)
        yield client


def _refuse_others(client: Any, address: str) -> None:
    ours = registry.version()
    try:
        found = set(client.run(registry.version).values()) - {ours}
    except ImportError as error:
        found = {f"none ({error})"}
    if found:
        raise Unsupported(
            f"--dask {address}: workers have hetopt {', '.join(sorted(found))}, "
            f"expected {ours}; install it where they run"
        )
