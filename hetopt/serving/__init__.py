"""A local page on which clusters and plans are looked at, and planned again.

The server keeps what it made in memory: instances and plans of them, each under a name
of its own, none of which changes again. What the page shows of a plan is the judge's
word.
"""

from collections.abc import Callable
from importlib import import_module

from ..api.calling import Place
from ..errors import Unsupported
from ..schema import Instance

__all__ = ["serve"]


def serve(
    instance: Place | Instance | None = None,
    *,
    port: int = 0,
    time_limit: float = 20,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C or SIGTERM.

    `ready` hears its address first. With `instance`, which may be a plan file, the page
    begins with that. Port 0 is any free one. `time_limit` is what the page proposes for
    a plan, in seconds. Raises what `hetopt.load` raises, and `Unsupported` where
    starlette or uvicorn is not installed or the port cannot be had.
    """
    for library in ("starlette", "uvicorn"):
        try:
            import_module(library)
        except ImportError:
            raise Unsupported(
                f"{library} is not installed, which serves the page: "
                "pip install starlette uvicorn"
            ) from None
    from .app import served

    served(instance, port, time_limit, ready)
