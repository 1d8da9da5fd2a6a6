"""A policy behind a server: what is asked, what comes back, and a server that does not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.rollout.endpoint import EndpointPolicy
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tasks.no_think import NoThink
from tests.envs.rollout.test_rollout import CHAT

LIMITS = Limits(64, 100_000, 4)


class Handler(BaseHTTPRequestHandler):
    """Calls the calculator with the numbers of the question, then says what it said."""

    asked: ClassVar[list[dict[str, Any]]] = []
    status: ClassVar[int] = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        last = body["messages"][-1]
        message: dict[str, Any] = {"role": "assistant", "content": last["content"], "reasoning_content": "so"}
        if last["role"] == "user" and "tools" in body:
            arguments = json.dumps({"expression": "".join(c for c in last["content"] if c in "0123456789+-")})
            function = {"name": "calculator", "arguments": arguments}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            }
        choice = {"message": message, "finish_reason": "length" if "tools" not in body else "stop"}
        data = json.dumps({"choices": [choice]}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    Handler.asked, Handler.status = [], 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join(10)


def test_a_server_calls_a_tool_and_answers(address: str) -> None:
    kind = Calculator(operators=("+",))
    tasks = [task for task in kind.generate(0, 30, "test") if "+" in task.question]
    with EndpointPolicy(EndpointConfig(url=address, model="m"), CHAT) as policy:
        done = rollout(tasks, policy, CHAT, {"calculator": kind}, drawing=Drawing(0.5, seed=3), limits=LIMITS)
    assert len(tasks) > 5 and [episode.score.reward for episode in done] == [1.0] * len(tasks)
    first, second = (body for body in Handler.asked if body["messages"][0]["content"] == tasks[0].question)
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("m", 0.5, 64)
    assert first["tools"][0]["function"]["name"] == "calculator"
    call, answer = second["messages"][1:]
    assert answer["tool_call_id"] == call["tool_calls"][0]["id"] and answer["content"] == tasks[0].answer


def test_an_answer_that_is_cut_is_malformed(address: str) -> None:
    (task,) = NoThink().generate(0, 1, "test")
    with EndpointPolicy(EndpointConfig(url=address, model="m"), CHAT) as policy:
        (episode,) = rollout([task], policy, CHAT, limits=LIMITS)
    assert episode.ended == "malformed" and episode.nodes[-1].ended == "length"


def test_a_server_that_does_not_answer_is_a_failure(address: str) -> None:
    Handler.status = 503
    (task,) = NoThink().generate(0, 1, "test")
    with EndpointPolicy(EndpointConfig(url=address, model="m", attempts=1), CHAT) as policy:
        (episode,) = rollout([task], policy, CHAT, limits=LIMITS)
    assert (episode.score.error, episode.score.failed) == ("the server gave no answer in 1 tries", "server")
