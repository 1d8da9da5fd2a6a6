"""A client of OpenAI-compatible servers, with the standard library: sends JSON, reads server-sent events.

Every failure on the way is an `IngotError` that says what to do.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator
from contextlib import closing, suppress
from socket import SHUT_RDWR
from socket import socket as Socket
from typing import Any
from urllib.parse import urlsplit

from ingot.workspace.errors import IngotError

SILENCE = 300.0  # seconds without a byte after which a server is given up
FIXES = {
    401: "give the server's key with --api-key",
    403: "give the server's key with --api-key",
    404: "check the address and the name of the model",
    413: "begin again with /reset, or say less",
    429: "the server is full: try again in {wait}",
    503: "the server is starting or stopping: try again in {wait}",
}


class Client:
    """A server at `url`: with or without /v1 at its end."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url if "://" in url else f"http://{url}"
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise IngotError("not the address of a server", place=f"--server {url}", fix="write http://HOST:PORT")
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        path = parts.path.rstrip("/")
        self._base = path if path.endswith("/v1") else f"{path}/v1"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def open(self, method: str, path: str, body: bytes | None = None) -> Exchange:
        """Send a request to `path` below /v1 and wait for the answer's head."""
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=SILENCE)
        try:
            connection.request(method, self._base + path, body, self._headers)
            return Exchange(connection.sock, connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise IngotError(
                f"no answer: {error}",
                place=self.url,
                fix="start a server there (ingot serve MODEL), or check the address",
            ) from None

    def models(self) -> list[dict[str, Any]]:
        """The models that the server lists under /v1/models."""
        with closing(self.open("GET", "/models")) as exchange:
            self._check(exchange)
            try:
                return list(json.loads(exchange.response.read())["data"])
            except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
                raise IngotError("its /v1/models is not OpenAI's", place=self.url, fix="check the address") from None

    def stream(self, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of one chat completion; closing the generator closes the connection, which stops the server."""
        data = json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}).encode()
        with closing(self.open("POST", "/chat/completions", data)) as exchange:
            self._check(exchange)
            while line := self._line(exchange):
                if not line.startswith(b"data:"):
                    continue
                text = line[5:].strip()
                if text == b"[DONE]":
                    return
                try:
                    chunk = dict(json.loads(text))
                except (ValueError, TypeError):
                    raise IngotError(
                        "an event that is not a JSON object", place=self.url, fix="check the address"
                    ) from None
                if "error" in chunk:
                    raise IngotError(_message(chunk), place=self.url, fix="/retry")
                yield chunk
        raise IngotError("the connection ended in the middle of the answer", place=self.url, fix="/retry")

    def _line(self, exchange: Exchange) -> bytes:
        try:
            return exchange.response.readline()
        except (OSError, http.client.HTTPException) as error:
            raise IngotError(f"the connection broke: {error}", place=self.url, fix="/retry") from None

    def _check(self, exchange: Exchange) -> None:
        response = exchange.response
        if response.status == 200:
            return
        data = response.read(65_536)
        try:
            problem = _message(json.loads(data))
        except ValueError:
            problem = data.decode("utf-8", "replace").strip()[:300] or response.reason
        after = response.getheader("Retry-After")
        fix = FIXES.get(response.status, "").format(wait=f"{after} seconds" if after else "a moment")
        if "context" in problem and response.status == 400:
            fix = FIXES[413]
        raise IngotError(f"{problem} (HTTP {response.status})", place=self.url, fix=fix or None)


class Exchange:
    """A request that has been answered: its response, and the socket to close."""

    def __init__(self, socket: Socket, response: http.client.HTTPResponse) -> None:
        self.response, self._socket = response, socket

    def close(self) -> None:
        """Hang up; a thread that waits for more gets the end."""
        with suppress(OSError):  # the other side may have been faster
            self._socket.shutdown(SHUT_RDWR)
        self._socket.close()


def _message(value: Any) -> str:
    """The message of an error in OpenAI's shape, or whatever is there."""
    error = value.get("error", value) if isinstance(value, dict) else value
    return str(error.get("message", error) if isinstance(error, dict) else error)
