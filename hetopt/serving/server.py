"""The server: an address with a token, and an end without leftovers."""

import socket
from collections.abc import Callable
from secrets import token_urlsafe
from types import FrameType

import uvicorn

from ..api.calling import Place
from ..errors import Unsupported
from ..schema import Instance
from .app import application
from .desk import Desk

HOST = "127.0.0.1"  # over a network: ssh -L


class _Server(uvicorn.Server):
    """A server that ends the plan in the making with itself."""

    def __init__(self, config: uvicorn.Config, desk: Desk) -> None:
        super().__init__(config)
        self.desk = desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit as uvicorn does, once the plan in the making is ended."""
        self.desk.close()
        super().handle_exit(sig, frame)


def served(
    instance: Place | Instance | None,
    port: int,
    time_limit: float,
    ready: Callable[[str], None],
) -> None:
    """Serve the page, as `hetopt.serving.serve` says."""
    desk = Desk(time_limit)
    if instance is not None:
        desk.open(instance)
    listening = bound(port)
    token = token_urlsafe(24)
    config = uvicorn.Config(
        application(desk, token),
        access_log=False,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    try:
        ready(f"http://{HOST}:{listening.getsockname()[1]}/{token}/")
        _Server(config, desk).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        desk.close()
        listening.close()


def bound(port: int) -> socket.socket:
    """Return a socket that listens there; `Unsupported` where there can be none."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise Unsupported(
            f"--port {port}: cannot be served: {error.strerror or error}; give another "
            "port, 0 for any free one"
        ) from None
