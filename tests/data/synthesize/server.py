"""A server that answers chat completions as a test tells it to, on this machine's loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], Any]  # status, headers, body (JSON, or bytes as they are)


def completion(text: str) -> Reply:
    """An ordinary answer."""
    return 200, {}, {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}


@contextmanager
def serving(answer: Callable[[dict[str, Any], dict[str, str]], Reply], delay: float = 0.0) -> Iterator[str]:
    """The address of a server whose replies are `answer(body, headers)`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(delay)
            status, headers, reply = (
                (404, {}, {}) if self.path != "/v1/chat/completions" else answer(body, dict(self.headers))
            )
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            try:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client has given up, as some tests want it to

        def log_message(self, *_: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
