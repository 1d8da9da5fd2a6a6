"""Time limits for requests that do not arrive, against clients who hold connections open and never ask (Slowloris).

uvicorn waits for ever for the first byte of a connection, and for the rest of a request that has begun. Here its head must be
there `HEAD_SECONDS` after the connection was opened or the first byte came, and its body `BODY_SECONDS` after the head, plus a
second for each `PACE` bytes that did come, so that large bodies arrive over slow lines. Answers have no limit here: a stream
lasts as long as it lasts, unless its client has read nothing of what waits for it during `UNREAD_SECONDS`.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ingot.serve.openai.errors import ApiError

HEAD_SECONDS, BODY_SECONDS = 20.0, 20.0
UNREAD_SECONDS = 600.0  # what an answer may take by itself (service.py)
PACE = 10_000  # bytes a second that are slow, but honest


class PatientProtocol(HttpToolsProtocol):
    """A connection. One at a time, the head or the body of a request is awaited, or nothing."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._awaited, self._since, self._seconds, self._received = "head", 0.0, 0.0, 0
        self._silent = True  # not a byte has come
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection was opened."""
        super().connection_made(transport)
        self._await("head", HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed, by whomever."""
        self._await_nothing()
        self._was_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes; the first of them after an answer begin another request, even if they are empty lines."""
        if self._timer is None and self.cycle is not None and self.cycle.response_complete:
            self._await("head", HEAD_SECONDS)
        self._silent = False
        super().data_received(data)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        if self._timer is None:  # it comes while the one before it is being answered
            self._await("head", HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._await("body", BODY_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._received += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._await_nothing()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """As much is waiting for the client as is kept for it."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read most of that."""
        self._was_read()
        super().resume_writing()

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as every other error is refused."""
        self._refuse(ApiError(400, msg))

    def _await(self, what: str, seconds: float) -> None:
        self._await_nothing()
        self._awaited, self._since, self._seconds, self._received = what, time.monotonic(), seconds, 0
        self._timer = self.loop.call_later(seconds, self._look)

    def _await_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """The time is over, unless bytes came at a fair pace, or the answer to the request before is still on its way."""
        answering = self.cycle is not None and not self.cycle.response_complete
        left = self._since + self._seconds + self._received / PACE - time.monotonic()
        if self.flow.read_paused or (answering and self._awaited == "head"):
            left = self._seconds
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
            return
        self._timer = None
        if self._silent or (self._awaited == "body" and self.cycle.response_started):
            self.transport.close()
        elif self._awaited == "head":
            self._refuse(ApiError(408, f"no whole request came in {self._seconds:g} seconds", code="request_timeout"))
        else:
            message = f"the rest of the request's body did not come; {self._received:,} bytes of it are here"
            self._refuse(ApiError(408, message, code="request_timeout"))

    def _refuse(self, error: ApiError) -> None:
        body = json.dumps(error.body()).encode("ascii")
        head = [STATUS_LINE[error.status], b"content-type: application/json\r\nconnection: close\r\n"]
        self.transport.write(b"".join([*head, b"content-length: %d\r\n\r\n" % len(body), body]))
        self.transport.close()
