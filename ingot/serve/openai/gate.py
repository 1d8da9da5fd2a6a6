"""Checks every request before the routes see it (Host, API key, size of the body), counts the answers and logs them."""

from __future__ import annotations

import hmac
import time
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingot.serve.hosts import host_name
from ingot.serve.openai.errors import ApiError
from ingot.serve.openai.service import Service

OPEN = ("/health",)  # for load balancers, which have no key
NOT_LOGGED = ("/health", "/metrics")  # asked every few seconds, by programs
LONGEST_PATH = 200  # characters of it in the log


@dataclass
class Tally:
    """The tokens of a request, as `request.state.tally`: those of its prompts, and those that were sampled for it."""

    read: int = 0
    written: int = 0


class Gate:
    """An ASGI application around another. `paths` are those that are counted by name; others are counted together."""

    def __init__(self, app: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        self._app, self._service, self._paths = app, service, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"
        read, status, began = 0, 500, time.monotonic()  # a bug in a route is answered further out, by a 500
        tally = scope.setdefault("state", {})["tally"] = Tally()

        async def counted_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._service.body_limit:
                raise HTTPException(413, self._too_large())
            return message

        async def counted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._service.metrics.requests.labels(path, message["status"]).inc()
            await send(message)

        answer = self._app
        try:
            self._check(scope)
        except ApiError as error:
            answer = error.response()
        try:
            await answer(scope, counted_receive, counted_send)
        finally:
            self._log(scope, status, time.monotonic() - began, tally)

    def _log(self, scope: Scope, status: int, seconds: float, tally: Tally) -> None:
        """A line of the log. The path is as it was sent: what is escaped in it, a line's end perhaps, stays escaped."""
        if self._service.log is None or scope["path"] in NOT_LOGGED:
            return
        path = scope["raw_path"].decode("ascii", "backslashreplace")[:LONGEST_PATH]
        line = f"{time.strftime('%H:%M:%S')} {scope['method']} {path} {status}, {seconds * 1000:,.0f} ms"
        if tally.read:
            line += f", {tally.read:,} tokens read, {tally.written:,} written"
        with suppress(OSError):  # nobody reads the log any more: the answer is what counts
            self._service.log(line)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        hosts, host = self._service.hosts, headers.get("host", "")
        if hosts is not None and not hosts.answers_to(host):
            message = f"this server does not answer to the name {host_name(host)!r}; start it with --allow-host NAME"
            raise ApiError(403, message, code="host_not_allowed")
        if self._service.key is not None and scope["path"] not in OPEN:
            scheme, _, key = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self._service.key.encode()):
                message = "the key is missing or wrong; send it as Authorization: Bearer KEY"
                raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._service.body_limit:
            raise ApiError(413, self._too_large())

    def _too_large(self) -> str:
        return f"the body is larger than {self._service.body_limit:,} bytes"
