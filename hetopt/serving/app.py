"""The addresses of the page: what is asked of the desk, and how it is answered."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
from pydantic import Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import HetoptError, InternalError
from ..schema import Name, Record
from ..text.complaints import validated
from ..text.parsing import parse_tree, yaml_text
from . import building
from .building import Posed
from .desk import Desk
from .guard import attachment, body_of
from .refusals import Refusal, refusal, told

STATIC = Path(__file__).with_name("static")
R = TypeVar("R", bound=Record)


class Order(Record):
    """A plan is asked for."""

    instance: Name
    time_limit: Annotated[float, Field(gt=0, le=86_400)]


class Desktop:
    """The endpoints over one desk; heavy work is done beside the loop, in turn."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._one = anyio.CapacityLimiter(1)

    async def _work(self, call: Callable[..., object], *words: object) -> Any:
        return await anyio.to_thread.run_sync(partial(call, *words), limiter=self._one)

    async def _lay(self, make: Callable[[Any], Posed], order: Any) -> Response:
        posed = await self._work(make, order)
        return JSONResponse(await self._work(self.desk.lay, posed))

    # -- what there is -----------------------------------------------------------

    async def examples(self, request: Request) -> Response:
        """Return the instances of the library, and a sentence on each."""
        return JSONResponse(await self._work(building.examples))

    async def state(self, request: Request) -> Response:
        """Return what a page that is opened anew begins with."""
        desk, shown = self.desk, None
        board = job = None
        if desk.current is not None and desk.current in desk.laid:
            shown = await self._work(desk.shown, desk.current)
            laid = desk.laid[desk.current]
            name = laid.best or laid.opened
            if name is not None and name in desk.sheets:
                board = desk.view(name)
            if desk.job is not None and desk.job.data.digest == desk.current:
                job = desk.job.id
        found = {"instance": shown, "board": board, "job": job}
        return JSONResponse({**found, "time_limit": desk.time_limit})

    # -- instances ---------------------------------------------------------------

    async def open_named(self, request: Request) -> Response:
        """An instance of the library."""
        order = await _read(request, building.Named)
        return await self._lay(building.named, order.name)

    async def upload(self, request: Request) -> Response:
        """An instance, or a plan with its instance, from a file."""
        return await self._lay(building.uploaded, await _read(request, building.File))

    async def instance_file(self, request: Request) -> Response:
        """The YAML of an instance."""
        instance = self.desk.find(request.path_params["digest"]).instance
        plain = json.loads(instance.model_dump_json(exclude_unset=True))
        text = yaml_text(plain, allow_unicode=True, width=100)
        return attachment(text, f"{instance.name}.yaml", "application/yaml")

    # -- plans -------------------------------------------------------------------

    async def picture(self, request: Request) -> Response:
        """The drawing of a plan."""
        drawn = await self._work(self.desk.picture, request.path_params["name"])
        return Response(drawn, media_type="image/png")

    async def plan_file(self, request: Request) -> Response:
        """The plan file that `hetopt check` takes."""
        sheet = self.desk.sheet(request.path_params["name"])
        instance = self.desk.find(sheet.digest).instance
        document = await self._work(sheet.to_file, instance)
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        return attachment(text, "plan.json", "application/json")

    async def timeline(self, request: Request) -> Response:
        """The timeline of a plan, a page by itself."""
        name = request.path_params["name"]
        text = await self._work(self.desk.timeline, name)
        return attachment(text, "timeline.html", "text/html")

    async def explain(self, request: Request) -> Response:
        """Return what limits a plan, and what would help: a page by itself."""
        name = request.path_params["name"]
        text = await self._work(self.desk.explain, name)
        return attachment(text, "explained.html", "text/html")

    # -- jobs --------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        """Start a plan."""
        order = await _read(request, Order)
        job = await self.desk.begin(order.instance, order.time_limit)
        return JSONResponse({"job": job.id}, 202)

    async def stop(self, request: Request) -> Response:
        """End a plan's search; what it has by then comes over its events."""
        self.desk.job_of(request.path_params["job"]).stop()
        return JSONResponse({}, 202)

    async def events(self, request: Request) -> Response:
        """Server-sent events of a job, from the first, or behind the last one seen."""
        job = self.desk.job_of(request.path_params["job"])
        last = request.headers.get("last-event-id", "0")
        after = int(last) if last.isdecimal() and len(last) < 10 else 0

        async def lines() -> AsyncIterator[str]:
            async for number, event in job.follow(after):
                text = json.dumps(event, allow_nan=False)
                yield f"id: {number}\nevent: {event['kind']}\ndata: {text}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")


async def _read(request: Request, record: type[R]) -> R:
    """The record that a request brings, as JSON."""
    tree = parse_tree(await body_of(request), "the request", is_json=True)
    return await run_in_threadpool(validated, record, tree, "the request", file="")


async def page(request: Request) -> Response:
    """The page itself."""
    return FileResponse(STATIC / "index.html")


def application(desk: Desk) -> Starlette:
    """All routes over a desk; what is wrong is a JSON document everywhere."""
    at = Desktop(desk)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        desk.close()

    ways: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {
        "GET": {
            "/": page,
            "/api/library": at.examples,
            "/api/state": at.state,
            "/api/instances/{digest}/instance.yaml": at.instance_file,
            "/api/plans/{name}/plan.json": at.plan_file,
            "/api/plans/{name}/plan.png": at.picture,
            "/api/plans/{name}/timeline.html": at.timeline,
            "/api/plans/{name}/explained.html": at.explain,
            "/api/jobs/{job}/events": at.events,
        },
        "POST": {
            "/api/instances/named": at.open_named,
            "/api/instances/file": at.upload,
            "/api/jobs": at.begin,
            "/api/jobs/{job}/stop": at.stop,
        },
    }
    routes = [
        Route(path, end, methods=[method])
        for method, ends in ways.items()
        for path, end in ends.items()
    ]
    static = Mount("/static", StaticFiles(directory=STATIC))
    return Starlette(
        routes=[*routes, static],
        exception_handlers={
            Refusal: _refuse,
            HetoptError: _complain,
            HTTPException: _unknown,
            Exception: _fail,
        },
        lifespan=lifespan,
    )


# --- what is wrong ---------------------------------------------------------------


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse(error.document, error.status)


async def _complain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HetoptError)
    ours = isinstance(error, InternalError)
    return JSONResponse(told(error), 500 if ours else 400)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _refuse(
        request,
        refusal(
            error.status_code,
            "bad_request",
            field="path",
            found=f"{request.method} {request.url.path[:100]}",
            expected="an address that the page uses",
            remedy="go back to the page",
        ),
    )


async def _fail(request: Request, error: Exception) -> Response:
    """A bug of ours, whose traceback goes to the terminal of the server."""
    words = f"a bug in hetopt, please report it: {type(error).__name__}: {error}"
    return JSONResponse(told(InternalError(words)), 500)
