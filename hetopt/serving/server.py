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
from .building import opened
from .desk import Desk
from .guard import Guard
from .hosts import is_everywhere, names_of

_LEFT_S = 3  # for open requests, when the server ends


class _Server(uvicorn.Server):
    """Ends the plan in the making with itself, whose stream would be waited for."""

    def __init__(self, config: uvicorn.Config, desk: Desk) -> None:
        super().__init__(config)
        self.desk = desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit as uvicorn does, once the plan in the making is ended."""
        self.desk.close()
        super().handle_exit(sig, frame)


def served(
    instance: Place | Instance | None,
    host: str,
    port: int,
    time_limit: float,
    ready: Callable[[str], None],
) -> None:
    """Serve the page, as `hetopt.serving.serve` says."""
    desk = Desk(time_limit)
    if instance is not None:
        desk.lay(opened(instance))
    listening = bound(host, port)
    token = token_urlsafe(24)
    guard = Guard(application(desk), token, names_of(host))
    config = uvicorn.Config(
        guard,
        access_log=False,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=_LEFT_S,
    )
    try:
        ready(f"{address_of(listening, host)}/{token}/")
        _Server(config, desk).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        desk.close()
        listening.close()


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; `Unsupported` where there can be none."""
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen()  # who hears the address may connect, and is answered later
    except OSError as error:
        raise Unsupported(
            f"--host {host} --port {port}: cannot be served: "
            f"{error.strerror or error}; give another host or port, 0 for any free one"
        ) from None
    return made


def address_of(listening: socket.socket, host: str) -> str:
    """The address for a browser; of all interfaces that of this machine."""
    port = listening.getsockname()[1]
    if is_everywhere(host):
        host = "127.0.0.1" if listening.family == socket.AF_INET else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
