"""Routes of the page's server besides the OpenAI API: the page itself, and its tools.

    GET  /           the page
    GET  /ui/tools   {"tools": [{"schema": …, "asks": …}, …], "on": …}
    POST /ui/tools   {"name", "arguments"} → {"content"}

`on` says whether the tools are offered to the model, unless the user says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ingot.envs.tools.tool import Tool, call_tool
from ingot.report.inline import inline
from ingot.tokens.chat import ToolCall
from ingot.workspace.version import VERSION

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

SHARED = ("report/page/base.js", "report/page/theme.js")
SCRIPTS = ("markdown", "store", "api", "tokens", "cards", "messages", "settings", "talk", "start")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
LONGEST_BODY = 2**20


def chat_page() -> str:
    """The HTML of the page; its script may send requests to where it came from, and nowhere else."""
    return inline(
        "serve/ui/page/chat.html",
        ("report/page/base.css", "serve/ui/page/chat.css"),
        [*SHARED, *(f"serve/ui/page/{name}.js" for name in SCRIPTS)],
        title="Ingot chat",
        data={"version": VERSION},
        connect="'self'",
    )


def add_routes(app: FastAPI, tools: Mapping[str, Tool], tools_on: bool) -> None:
    """Add the routes of the page and of `tools` to `app`."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import HTMLResponse, JSONResponse

    page = chat_page()

    async def show_page(_: Request) -> Response:
        return HTMLResponse(page, headers=HEADERS)

    async def list_tools(_: Request) -> Response:
        listed = [{"schema": tool.schema, "asks": tool.asks} for tool in tools.values()]
        return JSONResponse({"tools": listed, "on": tools_on})

    async def run_tool(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return JSONResponse(_error("send JSON"), 415)  # a form, which any site may post, must not run a tool
        call = _read_call(await request.body())
        if call is None:
            return JSONResponse(_error('send {"name": text, "arguments": mapping}'), 400)
        return JSONResponse({"content": await run_in_threadpool(call_tool, tools, call)})

    app.add_route("/", show_page, methods=["GET"], include_in_schema=False)
    app.add_route("/ui/tools", list_tools, methods=["GET"], include_in_schema=False)
    app.add_route("/ui/tools", run_tool, methods=["POST"], include_in_schema=False)


def _read_call(body: bytes) -> ToolCall | None:
    try:
        value = json.loads(body) if len(body) <= LONGEST_BODY else None
    except (ValueError, RecursionError):
        return None
    match value:
        case {"name": str(name), "arguments": dict(arguments)}:
            return ToolCall(name, arguments)
    return None


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
