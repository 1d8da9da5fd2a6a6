"""Connections on which no request arrives are closed; slow but honest ones, and streams of any length, are not."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ingot.inference.engine import Engine
from ingot.serve import slow_clients
from ingot.tokens.tokenizer import Tokenizer
from tests.making.processes import wait_until
from tests.serve.openai.harness import PATIENCE, Running, SlowEngine, serving, untrained

LIMIT = 0.2  # seconds for a head or a body in these tests
HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

CLOSE = b"\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(Engine(untrained(tokenizer), slots=2)) as running:
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "HEAD_SECONDS", LIMIT)
    monkeypatch.setattr(slow_clients, "BODY_SECONDS", LIMIT)


@contextmanager
def connection(server: Running) -> Iterator[socket.socket]:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as opened:
        yield opened


def read_all(opened: socket.socket) -> bytes:
    """Everything up to the end that the server makes."""
    received = b""
    while piece := opened.recv(65_536):
        received += piece
    return received


def drip(opened: socket.socket, data: bytes, every: float = 0.02) -> None:
    """Send a byte now and then, until all is sent or the other side has had enough."""
    for byte in data:
        try:
            opened.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(every)


def refusal(answer: bytes) -> str:
    """The message of a 408 in OpenAI's shape, the only answer on its connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ") and b"application/json" in head and b"connection: close" in head
    error = json.loads(body)["error"]
    assert error["code"] == "request_timeout"
    return str(error["message"])


def test_connections_without_a_request_are_closed(server: Running) -> None:
    """Nothing at all, the beginning of a head, a head byte by byte, empty lines after an answer: each for too long."""
    began = time.monotonic()
    with connection(server) as silent, connection(server) as begun, connection(server) as slow:
        begun.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        drip(slow, b"GET /health HTTP/1.1\r\nX: " + b"x" * 30)
        assert read_all(silent) == b""
        assert "no whole request came" in refusal(read_all(begun)) and "no whole request" in refusal(read_all(slow))
    assert LIMIT < time.monotonic() - began < PATIENCE
    with connection(server) as kept:
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(65_536).endswith(b'{"status":"ok"}')
        drip(kept, b"\r\n" * 15)
        assert "no whole request came" in refusal(read_all(kept))
    wait_until(lambda: not server.server.server_state.connections)


def test_a_body_must_come_at_some_pace(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"prompt": "x" * 80}).encode()
    with connection(server) as none, connection(server) as slow:
        none.sendall(HEAD % len(body))
        slow.sendall(HEAD % len(body))
        drip(slow, body[:30])
        assert "0 bytes of it are here" in refusal(read_all(none))
        assert "bytes of it are here" in refusal(read_all(slow))
    monkeypatch.setattr(slow_clients, "PACE", 30)  # bytes a second, which the same drip keeps
    with connection(server) as honest:
        honest.sendall(HEAD % len(body))
        began = time.monotonic()
        drip(honest, body, every=0.005)
        assert time.monotonic() - began > LIMIT
        assert b'"count":' in honest.recv(65_536)


def test_a_stream_may_last_longer_than_a_request_may_take(tokenizer: Tokenizer) -> None:
    """Also while half of the next request waits behind it, which the client sent too early."""
    body = b'{"prompt": "x", "max_tokens": 40, "ignore_eos": true, "stream": true}'
    with serving(SlowEngine(untrained(tokenizer), slots=2)) as running, connection(running) as client:
        began = time.monotonic()
        client.sendall((HEAD % len(body)).replace(b"/tokenize", b"/v1/completions") + body)
        client.sendall(HEAD[:20])
        answer = read_all(client)
        assert time.monotonic() - began > 2 * LIMIT
    stream, _, rest = answer.partition(b"data: [DONE]")
    assert stream.count(b"data: ") > 2 and b'"finish_reason":"length"' in stream
    assert b"HTTP/1.1 408 " in rest  # then the rest of that request did not come


def test_an_answer_that_nobody_reads_is_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is larger than what the system keeps for a connection; read after the limit, it is cut off."""
    monkeypatch.setattr(slow_clients, "UNREAD_SECONDS", LIMIT)
    body = json.dumps({"tokens": [100] * 150_000}).encode()
    with socket.socket(fileno=os.dup(server.server.servers[0].sockets[0].fileno())) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # for what it accepts from now on
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # a small window, before it is offered
        client.settimeout(PATIENCE)
        client.connect((host, int(port)))
        client.sendall((HEAD % len(body)).replace(b"/tokenize", b"/detokenize") + body)
        wait_until(lambda: any(each._unread is not None for each in _connections(server)))
        wait_until(lambda: not _connections(server))
    with connection(server) as client:  # the same, read at once, comes whole
        client.sendall((HEAD % len(body)).replace(b"/tokenize", b"/detokenize").replace(b"\r\n\r\n", CLOSE) + body)
        assert len(read_all(client)) > 150_000


def _connections(server: Running) -> list[slow_clients.PatientProtocol]:
    return [one for one in server.server.server_state.connections if isinstance(one, slow_clients.PatientProtocol)]


def test_what_is_no_http_is_refused_as_all_else_is(server: Running) -> None:
    with connection(server) as client:
        client.sendall(b"HELO there\r\n\r\n")
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and json.loads(body)["error"]["type"] == "invalid_request_error"
