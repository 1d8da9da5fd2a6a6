"""An OpenAI-compatible server that says what a script tells it: no model, no waiting, and it remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "scripted-1"


@dataclass
class Reply:
    """What the server does: `deltas` in order, or an error of another status."""

    deltas: list[dict[str, Any]] = field(default_factory=list)
    finish: str = "stop"
    gate: threading.Event | None = None  # what follows the first delta waits for it
    status: int = 200
    error: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    breaks: bool = False  # the connection ends before the answer does
    endless: bool = False  # the last delta comes again and again, until the client goes away
    usage: dict[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 20, "completion_tokens": 12, "total_tokens": 32}
    )


def text(*pieces: str, **options: Any) -> Reply:
    """An answer in these pieces."""
    return Reply([{"content": piece} for piece in pieces], **options)


def calls(name: str, *arguments: str, thinking: str = "") -> Reply:
    """A tool call, its arguments in pieces."""
    first = {"index": 0, "id": "call_abc", "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in arguments]
    thoughts = [{"reasoning_content": thinking}] if thinking else []
    return Reply([*thoughts, {"tool_calls": [first]}, *rest], finish="tool_calls")


@dataclass
class FakeServer:
    """`bodies` are the requests so far; `left` is set when a client went away before the end."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)


@contextmanager
def fake_server(script: Callable[[dict[str, Any]], Reply]) -> Iterator[FakeServer]:
    """A server on a free port whose answer to a request is what `script` makes of its body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.keys.append(self.headers.get("Authorization"))
            card = {"id": MODEL, "object": "model", "max_model_len": 4096}
            self._send(200, {"object": "list", "data": [card]} if self.path == "/v1/models" else {"error": "no"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.bodies.append(body)
            state.keys.append(self.headers.get("Authorization"))
            reply = script(body)
            if reply.status != 200:
                self._send(reply.status, {"error": reply.error or {"message": "refused"}}, reply.headers)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                self._stream(reply)
            except (BrokenPipeError, ConnectionResetError):
                state.left.set()

        def _stream(self, reply: Reply) -> None:
            for number, delta in enumerate(reply.deltas):
                if number and reply.gate is not None:
                    reply.gate.wait(timeout=20)
                delta, logprobs = {**delta}, delta.get("logprobs")
                delta.pop("logprobs", None)
                self._event({"choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": None}]})
            deadline = time.monotonic() + 20
            while reply.endless and time.monotonic() < deadline:
                self._event({"choices": [{"index": 0, "delta": reply.deltas[-1], "finish_reason": None}]})
                time.sleep(0.01)
            if reply.breaks:
                return
            self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]})
            self._event({"choices": [], "usage": reply.usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, value: dict[str, Any]) -> None:
            chunk = {"id": "chunk", "object": "chat.completion.chunk", "created": 0, "model": MODEL, **value}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()

        def _send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            for name, content in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, content)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = FakeServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
