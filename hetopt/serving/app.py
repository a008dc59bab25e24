"""The addresses of the page: what is asked of the desk, and how it is answered.

The token is the first part of every path, so that relative links carry it and no page
of another site can know it. A name that another site's server has put on our address
(DNS rebinding) is refused: the Host header must be this machine's.
"""

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType
from typing import Annotated, Any, TypeVar

import uvicorn
from pydantic import Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..api.calling import Place
from ..errors import HetoptError, InternalError, Unsupported
from ..schema import Instance, Name, Record
from ..text.complaints import validated
from ..text.documents import Document
from ..text.parsing import parse_tree, yaml_text
from .desk import Desk, Refusal, examples

HOST = "127.0.0.1"  # over a network: ssh -L
STATIC = Path(__file__).with_name("static")
MOST_BYTES = 4 * 2**20
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
R = TypeVar("R", bound=Record)
Endpoint = Callable[[Request], Awaitable[Response]]


class Named(Record):
    """An instance of the library is asked for."""

    name: Name


class File(Record):
    """A file that was uploaded: an instance, or a plan with its instance."""

    name: Name
    text: str


class Order(Record):
    """A plan is asked for."""

    instance: Name
    time_limit: Annotated[float, Field(gt=0, le=86_400)]


def application(desk: Desk, token: str) -> Starlette:
    """Return all routes over a desk; what is wrong is a JSON document everywhere."""
    routes = [*_routes(desk), Mount("/static", StaticFiles(directory=STATIC))]
    return Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_protected),
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"]),
        ],
        exception_handlers={
            Refusal: _refused,
            HetoptError: _complained,
            HTTPException: _unknown,
            Exception: _failed,
        },
    )


def _routes(desk: Desk) -> Iterator[Route]:
    """Yield what may be asked of a desk, and then what may be told to it."""

    def instance_file(digest: str) -> Response:
        instance = desk.find(digest).instance
        plain = json.loads(instance.model_dump_json(exclude_unset=True))
        text = yaml_text(plain, allow_unicode=True, width=100)
        return _attachment(text, "instance.yaml", "application/yaml")

    def plan_file(name: str) -> Response:
        text = json.dumps(desk.plan_file(name), indent=1, allow_nan=False) + "\n"
        return _attachment(text, "plan.json", "application/json")

    def picture(name: str) -> Response:
        return Response(desk.picture(name), media_type="image/png")

    async def events(request: Request) -> Response:
        job = desk.job_of(request.path_params["job"])
        after = request.query_params.get("after", "0")
        seen = int(after) if after.isdecimal() and len(after) < 10 else 0
        ended = job.ended  # read first: the last event is there by then
        return JSONResponse({"events": job.events[seen:], "ended": ended})

    async def stop(request: Request) -> Response:
        desk.job_of(request.path_params["job"]).stop()
        return JSONResponse({}, 202)

    def opened(file: File) -> Document:
        is_json = file.name.lower().endswith(".json")
        return desk.open(parse_tree(file.text, file.name, is_json=is_json))

    def begun(order: Order) -> Document:
        return {"job": desk.begin(order.instance, order.time_limit).id}

    gets: dict[str, Endpoint] = {
        "/": _page,
        "/api/library": _got(lambda: JSONResponse(examples())),
        "/api/state": _got(lambda: JSONResponse(desk.state())),
        "/api/instances/{digest}/instance.yaml": _got(instance_file),
        "/api/plans/{name}/plan.json": _got(plan_file),
        "/api/plans/{name}/plan.png": _got(picture),
        "/api/plans/{name}/timeline.html": _got(
            lambda name: HTMLResponse(desk.timeline(name))
        ),
        "/api/plans/{name}/explained.html": _got(
            lambda name: HTMLResponse(desk.explain(name))
        ),
        "/api/jobs/{job}": events,
    }
    posts: dict[str, Endpoint] = {
        "/api/instances/named": _posted(Named, lambda one: desk.open_named(one.name)),
        "/api/instances/file": _posted(File, opened),
        "/api/jobs": _posted(Order, begun),
        "/api/jobs/{job}/stop": stop,
    }
    yield from (Route(path, end) for path, end in gets.items())
    yield from (Route(path, end, methods=["POST"]) for path, end in posts.items())


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


def _got(answer: Callable[..., Response]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answer, **request.path_params)

    return endpoint


def _posted(record: type[R], answer: Callable[[R], Document]) -> Endpoint:
    def read(body: bytes) -> Document:
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise Refusal(400, "bad_request", "the request is no UTF-8 text") from None
        tree = parse_tree(text, "the request", is_json=True)
        return answer(validated(record, tree, "the request", file=""))

    async def endpoint(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise Refusal(
                    413,
                    "too_large",
                    f"found more than {MOST_BYTES >> 20} MiB; plan a file of that size "
                    "with `hetopt plan`",
                )
        return JSONResponse(await run_in_threadpool(read, body))

    return endpoint


def _attachment(content: str, name: str, media_type: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)


async def _protected(request: Request, answer: Any) -> Response:
    """Give what is sent the headers that keep the page to itself."""
    response: Response = await answer(request)
    response.headers.update(HEADERS)
    return response


# --- what is wrong ---------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    document = {"kind": error.kind, "message": str(error), "field": None}
    return JSONResponse({"error": document}, error.status)


async def _complained(request: Request, error: Exception) -> Response:
    assert isinstance(error, HetoptError)
    document = {"kind": error.kind, "message": str(error), "field": error.field}
    ours = isinstance(error, InternalError)
    return JSONResponse({"error": document}, 500 if ours else 400)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = (
        "found an address that the page does not use; open what `hetopt serve` printed"
    )
    return await _refused(request, Refusal(error.status_code, "bad_request", said))


async def _failed(request: Request, error: Exception) -> Response:
    """A bug of ours, whose traceback goes to the terminal of the server."""
    words = f"a bug in hetopt, please report it: {type(error).__name__}: {error}"
    return await _complained(request, InternalError(words))


# --- the server, which ends without leftovers -----------------------------------


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
