"""The guard says who may ask: those who know the token, on this machine, in bounds.

The token is the first part of every path, so that relative links carry it and no page
of another site can know it. A name that another site's server has put on our address
(DNS rebinding) is refused: the Host header must be an address, or a name of ours.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from secrets import compare_digest

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .refusals import Refusal, refusal

MOST_BYTES = 4 * 2**20
_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::\d*)?")
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


class Guard:
    """An application that hands on what passes, without the token in its path."""

    def __init__(self, app: ASGIApp, token: str, names: Iterable[str] = ()) -> None:
        """`names` are hosts that may be asked for, beside loopback ones.

        Where one of them is `*`, so is every address, though no other name.
        """
        self.app, self.token = app, token
        self.names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no sockets are spoken here
            return
        try:
            answer: ASGIApp = self._check(scope)
        except Refusal as refused:
            answer = JSONResponse(refused.document, refused.status)
        await answer(scope, receive, _protect(send))

    def _check(self, scope: Scope) -> ASGIApp:
        """Return who answers; the path of the scope is then without the token."""
        self._check_host(Headers(scope=scope).get("host", ""))
        token, slash, rest = scope["path"].removeprefix("/").partition("/")
        if not compare_digest(token.encode(), self.token.encode()):
            raise refusal(
                403,
                "not_allowed",
                field="token",
                found="an address without the token" if not token else "a wrong token",
                expected="the one of this server",
                remedy="open the address that `hetopt serve` printed",
            )
        if not slash:
            return RedirectResponse(f"/{self.token}/")
        scope["path"] = f"/{rest}"
        scope["raw_path"] = scope["path"].encode()
        return self.app

    def _check_host(self, header: str) -> None:
        host = host_of(header)
        if host == "localhost" or host in self.names:
            return
        try:
            address = ip_address(host)
        except ValueError:
            address = None
        if address is not None and (address.is_loopback or "*" in self.names):
            return
        raise refusal(
            403,
            "not_allowed",
            field="Host",
            found=repr(header[:100]),
            expected="this machine's own address",
            remedy="open the address that `hetopt serve` printed",
        )


def host_of(header: str) -> str:
    """Return the host of a Host header, in lower case, without port and brackets.

    What is no host with an optional port is an empty text, which is nobody's name.
    """
    found = _HOST.fullmatch(header.strip().lower())
    return (found["six"] or found["name"]) if found else ""


def _protect(send: Send) -> Send:
    """Give what is sent the headers that keep the page to itself."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", ())
            there = {name.lower() for name, _ in given}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
            added = [pair for pair in more if pair[0] not in there]
            message["headers"] = [*given, *added]
        await send(message)

    return sent


async def body_of(request: Request, most: int = MOST_BYTES) -> str:
    """The text of a request; `Refusal` where it is too long or no UTF-8."""
    size, parts = 0, []
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise refusal(
                413,
                "too_large",
                found=f"more than {most >> 20} MiB",
                expected="at most that",
                remedy="plan a file of that size with `hetopt plan`",
            )
        parts.append(part)
    try:
        return b"".join(parts).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal(
            400,
            "bad_request",
            found=f"a byte that is not UTF-8 at offset {error.start}",
            expected="UTF-8 text",
            remedy="save it as UTF-8",
        ) from None


def attachment(content: str | bytes, name: str, media_type: str) -> Response:
    """A file to keep."""
    safe = "".join(
        c if (c.isascii() and c.isalnum()) or c in "-._" else "-" for c in name
    )
    headers = {"content-disposition": f'attachment; filename="{safe}"'}
    return Response(content, media_type=media_type, headers=headers)
