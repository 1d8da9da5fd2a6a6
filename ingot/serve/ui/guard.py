"""Checks requests to the page's server (Host, Origin, key).

A page on loopback can be reached by every web site that the user has open, so:

* Host must be a name of this machine. A site whose name is made to point here (DNS rebinding) sends its own name.
* Origin, where a browser sends one, must be that same host. No other site may post, and there are no CORS headers.
* With a key, everything but the page itself needs `Authorization: Bearer KEY`.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from ingot.serve.hosts import Hosts

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/", "/health")  # what needs no key: the page, which holds no secret, and the sign of life


class Guard:
    """The rules above around an ASGI app; what breaks them is answered 401 or 403 in OpenAI's shape."""

    def __init__(self, app: ASGIApp, host: str, key: str | None) -> None:
        self.app, self.key = app, key
        self.hosts = Hosts(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            from starlette.responses import JSONResponse

            status, message = refusal
            error = {"message": message, "type": "authentication_error", "param": None, "code": None}
            await JSONResponse({"error": error}, status)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not self.hosts.answers_to(host):
            return 403, "this server only answers to the names of its own machine"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "requests from other web sites are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and scope["path"] != "/":
            return 403, "requests from other web sites are refused"
        if self.key and scope["path"] not in OPEN_PATHS:
            given = headers.get("authorization", "").removeprefix("Bearer ").strip()
            if not hmac.compare_digest(given.encode(), self.key.encode()):
                return 401, "the key is missing or wrong"
        return None
