"""Passes requests of the page on to another OpenAI-compatible server.

The page may only send requests to its own server. The other server's key stays here; the browser never sees it.
"""

from __future__ import annotations

import http.client
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ingot.inference.client import Client, Exchange
from ingot.workspace.errors import IngotError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

PASSED_ON = ("content-type", "retry-after")


def make_proxy(client: Client) -> FastAPI:
    """An app with the routes that the page needs, answered by the server of `client`."""
    from fastapi import FastAPI
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse, StreamingResponse

    from ingot.serve.openai.errors import handle_errors

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    handle_errors(app)

    async def forward(request: Request) -> Response:
        path = request.url.path.removeprefix("/v1")
        body = await request.body()
        try:
            exchange = await run_in_threadpool(client.open, request.method, path, body or None)
        except IngotError as error:
            message = {
                "message": f"{error.place}: {error.problem}",
                "type": "server_error",
                "param": None,
                "code": None,
            }
            return JSONResponse({"error": message}, 502)
        found = ((name, exchange.response.getheader(name)) for name in PASSED_ON)
        headers = {name: value for name, value in found if value is not None}
        return StreamingResponse(_parts(exchange), exchange.response.status, headers)

    app.add_route("/v1/models", forward, methods=["GET"], include_in_schema=False)
    app.add_route("/v1/chat/completions", forward, methods=["POST"], include_in_schema=False)
    return app


async def _parts(exchange: Exchange) -> AsyncIterator[bytes]:
    """The answer as it comes. When the browser goes away the generator is closed, and the connection at once with it."""
    from anyio.to_thread import run_sync

    try:
        while part := await run_sync(exchange.response.read1, 65_536, abandon_on_cancel=True):
            yield part
    except (OSError, http.client.HTTPException):
        return  # the page sees an answer without an end, and says so
    finally:
        exchange.close()
