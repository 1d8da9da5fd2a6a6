"""Clients that go away, a full queue, a failing engine, and the end of the server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.cli.app import app
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import IngotError
from tests.making.processes import alive, descendants, finds_processes, wait_until
from tests.serve.openai.harness import PATIENCE, Running, SlowEngine, http, serving, untrained

ENDLESS: dict[str, Any] = {"model": "speaker", "prompt": "x", "max_tokens": 900, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def slow(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(SlowEngine(untrained(tokenizer), slots=2), limit=3) as running:
        yield running


def nothing_held(server: Running) -> bool:
    stats = server.runner.stats
    return stats.active == stats.waiting == stats.pages_used == server.runner.open == 0


def test_a_client_that_leaves_a_stream_frees_its_slot(slow: Running) -> None:
    stream = slow.client.completions.create(**ENDLESS, stream=True)
    for _, part in zip(range(3), stream, strict=False):
        assert part.choices
    assert slow.runner.stats.active == 1 and slow.runner.stats.pages_used > 0
    stream.close()
    wait_until(lambda: nothing_held(slow))
    assert abandoned(slow) == 1


def test_a_client_that_leaves_while_it_waits_frees_all_its_slots(slow: Running) -> None:
    """One that wanted the answer in one piece: three choices, of which one waits."""
    host, port = slow.url.removeprefix("http://").split(":")
    body = b'{"prompt": "x", "n": 3, "max_tokens": 900, "ignore_eos": true}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: slow.runner.stats.active == 2 and slow.runner.stats.waiting == 1)
    wait_until(lambda: nothing_held(slow))


def test_a_full_queue_is_a_429_that_says_when_to_come_back(slow: Running) -> None:
    streams = [slow.client.completions.create(**ENDLESS, stream=True) for _ in range(2)]
    waiting = threading.Thread(target=lambda: slow.client.completions.create(**ENDLESS | {"max_tokens": 3}))
    waiting.start()
    wait_until(lambda: slow.runner.open == 3)
    with pytest.raises(openai.RateLimitError) as caught:
        slow.client.completions.create(**ENDLESS)
    assert caught.value.code == "queue_full" and int(caught.value.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()
    waiting.join(PATIENCE)
    assert slow.client.completions.create(**ENDLESS | {"max_tokens": 3}).usage is not None


def test_a_drain_finishes_what_runs_and_takes_nothing_new(slow: Running) -> None:
    stream = slow.client.completions.create(**ENDLESS | {"max_tokens": 60}, stream=True)
    next(stream)
    slow.server.stop()
    with pytest.raises(openai.InternalServerError) as caught:
        slow.client.completions.create(**ENDLESS)
    assert caught.value.status_code == 503 and caught.value.code == "draining"
    assert http.get(f"{slow.url}/health").status_code == 503
    parts = list(stream)
    assert parts[-1].choices[0].finish_reason == "length"
    slow.thread.join(PATIENCE)
    assert not slow.thread.is_alive()


def test_a_drain_that_takes_too_long_says_so_in_the_stream(tokenizer: Tokenizer) -> None:
    with serving(SlowEngine(untrained(tokenizer), slots=2)) as running:
        running.server._drain = 0.1
        stream = running.client.completions.create(**ENDLESS, stream=True)
        next(stream)
        running.server.stop()
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)


class Failing(Engine):
    """Fails while `broken`."""

    broken = False

    def step(self) -> None:
        if self.broken:
            raise IngotError("the logits are not finite")
        super().step()


def test_an_engine_that_fails_and_recovers(tokenizer: Tokenizer) -> None:
    engine = Failing(untrained(tokenizer), slots=2)
    with serving(engine) as running:
        engine.broken = True
        with pytest.raises(openai.InternalServerError) as caught:
            running.client.completions.create(**ENDLESS)
        assert caught.value.code == "engine_error" and "not finite" in str(caught.value)
        engine.broken = False
        assert running.client.completions.create(**ENDLESS | {"max_tokens": 3}).usage is not None
        engine.broken = True
        for _ in range(3):
            with pytest.raises(openai.InternalServerError):
                running.client.completions.create(**ENDLESS)
        assert http.get(f"{running.url}/health").status_code == 503


def abandoned(running: Running) -> float | None:
    return running.service.metrics.registry.get_sample_value("ingot_abandoned_total")


def test_metrics_as_prometheus_reads_them(tokenizer: Tokenizer) -> None:
    with serving(Engine(untrained(tokenizer), slots=2)) as running:
        for _ in range(2):
            prompt = tokenizer.encode("the numbers is the sum of the numbers" * 4)
            running.client.completions.create(**ENDLESS | {"max_tokens": 10, "prompt": prompt})
        http.get(f"{running.url}/nowhere")
        text = http.get(f"{running.url}/metrics").text
        stats = running.runner.stats
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    path, status = ("path", "/v1/completions"), ("status", "200")
    assert samples["ingot_requests_total", path, status] == 2
    assert samples["ingot_requests_total", ("path", "other"), ("status", "404")] == 1
    assert samples["ingot_generated_tokens_total",] == 20 == stats.generated_tokens
    assert samples["ingot_prompt_tokens_total",] == 2 * len(prompt)
    assert samples["ingot_prefix_shared_tokens_total",] == stats.shared_tokens > 0
    assert samples["ingot_cache_pages_used",] == 0 < samples["ingot_cache_pages",]
    assert samples["ingot_time_to_first_token_seconds_count",] == 2
    assert samples["ingot_inter_token_seconds_count",] == 18
    assert samples["ingot_inter_token_seconds_bucket", ("le", "+Inf")] == 18
    assert samples["ingot_info", ("model", "speaker")] == 1
    assert "_created" not in text
    assert samples["ingot_request_seconds_sum",] >= samples["ingot_inter_token_seconds_sum",] > 0


def test_each_request_is_a_line_of_the_log(tokenizer: Tokenizer) -> None:
    """Also one that is refused; a path cannot forge a line, and a log that cannot be written harms nobody."""
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        if "/full" in line:
            raise BrokenPipeError

    with serving(Engine(untrained(tokenizer), slots=2), log=log, key="k3y") as running:
        asked: dict[str, Any] = ENDLESS | {"prompt": [5, 6, 7], "max_tokens": 10, "n": 2}
        list(running.client.completions.create(**asked, stream=True))
        running.client.completions.create(**asked | {"n": 1})
        running.client.completions.create(**asked | {"max_tokens": 0, "n": 1}, echo=True)
        known = {"Authorization": "Bearer k3y"}
        http.get(f"{running.url}/v1/models")
        http.get(f"{running.url}/a%0a12:00:00?secret=1", headers=known)
        assert http.get(f"{running.url}/full", headers=known).status_code == 404
        http.get(f"{running.url}/metrics", headers=known)
    assert all(re.match(r"\d\d:\d\d:\d\d \w+ /\S* \d{3}, \d[\d,]* ms(, |$)", line) for line in lines)
    assert [re.sub(r"^\S+ | [\d,]+ ms", "", line) for line in lines] == [
        "POST /v1/completions 200,, 3 tokens read, 20 written",
        "POST /v1/completions 200,, 3 tokens read, 10 written",
        "POST /v1/completions 200,, 3 tokens read, 0 written",
        "GET /v1/models 401,",
        "GET /a%0a12:00:00 404,",
        "GET /full 404,",
    ]


@pytest.mark.slow
@finds_processes
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_model_divided_over_two_processes(end: signal.Signals, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Its texts are those of one; it ends by itself as one does, and when the other process is killed, with a word about it."""
    model = untrained(tokenizer)
    save_checkpoint(tmp_path / "small", model)
    command = [sys.executable, "-m", "ingot", "serve", str(tmp_path / "small"), "--port", "0", "--tensor", "2"]
    command += ["--slots", "2", "--device", "cpu", "--precision", "float32"]  # by default bfloat16 where the CPU has it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            _, place = [process.stdout.readline() for _ in range(2)]
            client = openai.OpenAI(base_url=place.split()[2], api_key="none", max_retries=0)
            asked: dict[str, Any] = {"model": "small", "prompt": [5, 6, 7], "max_tokens": 20, "temperature": 0}
            found = client.completions.create(**asked, logprobs=0).choices[0].logprobs
            (expected,) = Engine(model, slots=1).complete([[5, 6, 7]], [Sampling(temperature=0, max_new_tokens=20)])
            assert found is not None and found.token_logprobs == pytest.approx(expected.logprobs, abs=1e-5)
            (follower,) = descendants(process.pid)
            os.kill(process.pid if end == signal.SIGTERM else follower, end)
            assert process.wait(PATIENCE) == (0 if end == signal.SIGTERM else 1)
            assert ("rank 1 of 2" in process.stderr.read()) == (end == signal.SIGKILL)
            wait_until(lambda: not alive(follower))
        finally:
            process.kill()


def test_sigterm_drains_and_ends_with_zero(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The command itself, as a process: an answer that has begun is finished, then the process ends by itself."""
    save_checkpoint(tmp_path / "small", untrained(tokenizer))
    command = [sys.executable, "-m", "ingot", "serve", str(tmp_path / "small"), "--port", "0", "--slots", "2"]
    command += ["--bits", "8", "--speculate", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            packed, said, place = [process.stdout.readline() for _ in range(3)]
            assert packed.startswith("weights in 8 bits: ")
            assert said.startswith("small: ") and "serving at http://127.0.0.1:" in place
            url = place.split()[2]
            client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
            assert client.models.list().data[0].id == "small"
            stream = client.completions.create(**ENDLESS | {"model": "small", "max_tokens": 300}, stream=True)
            next(stream)
            process.send_signal(signal.SIGTERM)
            assert list(stream)[-1].choices[0].finish_reason == "length"
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_the_command_refuses_what_would_go_wrong(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "small", untrained(tokenizer, context=64))
    long = CliRunner().invoke(app, ["serve", str(tmp_path / "small"), "--length", "65", "--port", "0"])
    assert isinstance(long.exception, IngotError)
    assert "--length: 65 tokens, and the model's context is 64" in str(long.exception)
    public = CliRunner().invoke(app, ["serve", str(tmp_path), "--host", "0.0.0.0"], env={"INGOT_API_KEY": ""})
    assert isinstance(public.exception, IngotError) and "--api-key" in str(public.exception)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        from ingot.serve.openai.run import listen

        with pytest.raises(IngotError, match="choose another port"):
            listen("127.0.0.1", taken.getsockname()[1])


SCORED: dict[str, Any] = {"prompt": "the sum", "max_tokens": 0, "echo": True, "logprobs": 0}


def slowly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the scoring of a prompt take a moment; the list grows with each one that was handed in."""
    done: list[int] = []
    submit = Engine.submit_scoring

    def score(*rest: Any, **options: Any) -> Any:
        time.sleep(0.02)
        done.append(len(done))
        return submit(*rest, **options)

    monkeypatch.setattr(Engine, "submit_scoring", score)
    return done


def test_a_client_that_leaves_has_no_more_prompts_scored(slow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    done = slowly(monkeypatch)
    host, port = slow.url.removeprefix("http://").split(":")
    body = json.dumps(SCORED | {"prompt": ["the sum"] * 2000}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: len(done) > 2)
    wait_until(lambda: nothing_held(slow))
    assert len(done) < 2000 and abandoned(slow) == 1


def test_too_many_prompts_are_refused_before_any_is_scored(slow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    done = slowly(monkeypatch)
    answer = http.post(f"{slow.url}/v1/completions", json=SCORED | {"prompt": ["x", "y"], "n": 2, "max_tokens": 1})
    assert answer.status_code == 400 and "4 choices in all" in answer.json()["error"]["message"] and not done


def test_scoring_is_refused_like_any_other_request_while_draining(slow: Running) -> None:
    slow.runner.stop_taking()
    answer = http.post(f"{slow.url}/v1/completions", json=SCORED)
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "draining"


def test_those_who_wait_for_scores_do_not_keep_others_from_being_read(tokenizer: Tokenizer) -> None:
    """More of them than a pool of threads has, while the engine stands still."""
    count = 40
    with serving(Engine(untrained(tokenizer), slots=2)) as server, ThreadPoolExecutor(count) as clients:
        with server.runner.paused(PATIENCE):
            url = f"{server.url}/v1/completions"
            answers = [clients.submit(http.post, url, json=SCORED) for _ in range(count)]
            wait_until(lambda: len(server.runner._jobs) == count)
            assert http.post(f"{server.url}/tokenize", json={"prompt": "the sum"}).json()["count"] > 0
        assert {answer.result(PATIENCE).status_code for answer in answers} == {200}
