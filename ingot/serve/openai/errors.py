"""Converts every error to OpenAI's format, with a message, a type, the parameter and a code.

| status | code                       | when                                                                  |
|--------|----------------------------|-----------------------------------------------------------------------|
| 400    | none, invalid_value …      | the body is not JSON, a field is missing, unknown or out of range     |
| 400    | context_length_exceeded    | the prompt leaves no room for an answer                               |
| 400    | invalid_schema             | a JSON schema, regular expression or tool that llguidance refuses     |
| 401    | invalid_api_key            | the key is missing or wrong                                           |
| 403    | host_not_allowed           | the Host header is not a name of this server                          |
| 404    | model_not_found, not_found | another model's name, or an address that does not exist               |
| 405    | method_not_allowed         | GET where POST is wanted, or the other way round                      |
| 408    | request_timeout            | the request did not come whole in time (slow_clients.py)              |
| 413    | body_too_large             | the body is larger than the server reads                              |
| 429    | queue_full                 | as many requests or schemas as allowed are waiting; see Retry-After   |
| 500    | engine_error               | the model failed on this request (weights that are not finite, memory)|
| 503    | draining                   | the server is shutting down, or its engine has failed for good        |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from ingot.inference.runner import NotTaking, QueueFull
from ingot.inference.structure.errors import StructureError
from ingot.workspace.errors import IngotError

LONGEST_PATH = 200  # characters of an address in a message
CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code or CODES.get(status)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        kind = TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The error as an answer."""
        return JsonAnswer(self.body(), self.status, self.headers)


class JsonAnswer(JSONResponse):
    """JSON in ASCII: a lone surrogate, which a client may send as an escape, is sent back as an escape."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refused(error: IngotError, *, param: str | None = None, code: str | None = None) -> ApiError:
    """An error of the client: the problem and its fix, as a 400."""
    message = f"{error.problem}; {error.fix}" if error.fix else error.problem
    return ApiError(400, message, param=param, code=code)


def as_api_error(error: Exception) -> ApiError:
    """The answer to a request that the runner refused or ended."""
    match error:
        case ApiError():
            return error
        case QueueFull():
            headers = {"Retry-After": str(error.retry_after)}
            return ApiError(429, f"{error.problem}; {error.fix}", code="queue_full", headers=headers)
        case StructureError():  # it compiled, but a limit was reached on the way
            return refused(error, code="invalid_schema")
        case NotTaking():
            return ApiError(503, error.problem, code="draining", headers={"Retry-After": "5"})
        case _:
            return ApiError(500, f"the model could not answer: {error}", code="engine_error")


def handle_errors(app: FastAPI) -> None:
    """Give every error of `app` OpenAI's shape."""

    @app.exception_handler(ApiError)
    async def ours(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"there is nothing at {request.url.path[:LONGEST_PATH]}; the API's addresses begin with /v1"
        return ApiError(error.status_code, message, headers=error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return validation_error(error.errors(), error.body).response()

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> Response:  # it is raised again, into the log
        return ApiError(500, "an error in the server; its log says more", code="internal_error").response()


def validation_error(errors: Sequence[Any], body: Any) -> ApiError:
    """The first complaint about a body; where a field may have several forms, what each of them wants."""
    broken = [error for error in errors if error["type"] == "json_invalid"]
    if broken:
        return ApiError(400, f"the body is not JSON: {broken[0]['ctx']['error']}")
    if not isinstance(body, dict):
        return ApiError(400, "the body must be a JSON object, sent as application/json")
    where = _field(errors[0], body)
    messages = [error["msg"].removeprefix("Value error, ") for error in errors if _field(error, body) == where]
    message = " or: ".join(dict.fromkeys(messages))
    return ApiError(400, f"{where}: {message}" if where else message, param=where, code="invalid_value")


def _field(error: Any, body: Any) -> str | None:
    """The path to the error in the body, without pydantic's names for the forms that a value may have."""
    path = []
    for part in error["loc"][1:]:
        there = part in body if isinstance(body, dict) else isinstance(body, list) and part in range(len(body))
        if there or (error["type"] == "missing" and part == error["loc"][-1]):
            path.append(str(part))
            body = body[part] if there else None
    return ".".join(path) or None
