"""A server under load: concurrent streaming clients against `ingot serve` in a process of its own.

Every client asks, reads its answer to the end and asks again, until the time is over. Prompts begin with one of a few
system texts and go on differently; answers are of mixed lengths. Told are tokens per second, the time to the first token,
the time between two, errors, what the server still holds when everyone has left, and how its memory grew.

    python benchmarks/serving.py [--clients 64] [--seconds 60] [--device cpu|cuda] [--model PATH] [--quick] [--hostile]

With --hostile every fourth request asks for an answer by a new schema of 3,000 properties, one of two with more ways to go on
than the server follows. Refusing it is right, failing is not: any status of 500 or more is an error.

Without a model a small one with random weights is served: it writes noise at the speed of a model of its size.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SYSTEMS = [f"You are assistant number {number}. " + "Answer briefly and to the point. " * 6 for number in range(4)]
WORDS = ["the", "sum", "of", "all", "numbers", "is", "what", "a", "small", "river", "sees", "at", "night"]
ANSWER_TOKENS = (32, 128)
PROPERTIES = 3000  # of a hostile schema
PATIENCE = 120.0  # seconds that any answer may take


@dataclass
class Measured:
    """What the clients saw."""

    answers: int = 0
    tokens: int = 0
    errors: list[str] = field(default_factory=list)
    refused: int = 0  # hostile requests that were answered 400 or 429
    held: int = 0  # hostile requests that were answered
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)


def make_model(folder: Path, device: str) -> Path:
    """A checkpoint with random weights and a tokenizer: of the size of SmolLM2-135M for a GPU, much smaller for a CPU."""
    from ingot.checkpoints.checkpoint import save_checkpoint
    from ingot.model.config import ModelConfig
    from ingot.model.initialise import initialise
    from ingot.model.transformer import Transformer
    from ingot.tokens.config import TokenizerConfig
    from ingot.tokens.train_tokenizer import train_tokenizer

    width, depth, heads = (576, 30, 9) if device == "cuda" else (192, 6, 3)
    attention = {"heads": heads, "key_value_heads": heads // 3, "head_width": 64}
    tokenizer = train_tokenizer([" ".join(WORDS) + " "] * 50, TokenizerConfig(vocabulary_size=512))
    config = {
        "vocabulary_size": 49_152 if device == "cuda" else tokenizer.vocabulary_size,
        "width": width,
        "blocks": {"layer": {"mixer": attention, "feed_forward": {"width": width * 8 // 3}}},
        "layers": f"layer*{depth}",
        "context": 2048,
    }
    model = Transformer(ModelConfig.model_validate(config))
    initialise(model, seed=0)
    model.tokenizer = tokenizer
    save_checkpoint(folder / "noise", model)
    return folder / "noise"


def request_body(generator: random.Random) -> dict[str, Any]:
    """A conversation that shares its beginning with others, and how long its answer is."""
    question = " ".join(generator.choices(WORDS, k=generator.randint(4, 40)))
    return {
        "messages": [{"role": "system", "content": generator.choice(SYSTEMS)}, {"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": generator.randint(*ANSWER_TOKENS),
        "ignore_eos": True,
        "reasoning_effort": "none",
    }


def hostile_body(generator: random.Random) -> dict[str, Any]:
    """A request for JSON by a schema that nobody sent before."""
    names = [f"p{generator.getrandbits(60):x}" for _ in range(PROPERTIES)]
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    schema |= {"additionalProperties": False} | ({"required": names} if generator.random() < 0.5 else {})
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return request_body(generator) | {"response_format": form, "stream": False, "stream_options": None}


async def ask_hostile(host: str, port: int, body: dict[str, Any], measured: Measured) -> None:
    """One hostile request; an answer or a refusal is right."""
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        answer = await reader.read()
        status = int(answer.split(b" ", 2)[1]) if answer else 0
        if status not in (200, 400, 429):
            raise ValueError(f"status {status}: {answer.decode(errors='replace')[-200:]}")
        measured.held += status == 200
        measured.refused += status != 200
    finally:
        writer.close()


async def ask(host: str, port: int, body: dict[str, Any], measured: Measured) -> None:
    """One answer, read event by event. HTTP/1.0: the body ends with the connection, so lines are all there is to parse."""
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    began = last = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port, limit=2**20)
    try:
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        status = (await reader.readline()).split()
        if len(status) < 2 or status[1] != b"200":
            raise ValueError(f"status {status[1:2]}: {(await reader.read()).decode(errors='replace')[-200:]}")
        finished, tokens, seen = False, 0, 0
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                finished = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                raise ValueError(event["error"]["message"])
            if event["choices"] and (event["choices"][0]["delta"].get("content")):
                now = time.perf_counter()
                (measured.between if seen else measured.first).append(now - (last if seen else began))
                seen, last = seen + 1, now
            elif event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
        if not finished or tokens != body["max_tokens"]:
            raise ValueError(f"the answer broke off after {tokens} of {body['max_tokens']} tokens")
        measured.answers += 1
        measured.tokens += tokens
    finally:
        writer.close()


async def client(number: int, host: str, port: int, end: float, measured: Measured, hostile: bool) -> None:
    generator = random.Random(number)
    while time.perf_counter() < end:
        try:
            async with asyncio.timeout(PATIENCE):
                if hostile and generator.random() < 0.25:
                    await ask_hostile(host, port, hostile_body(generator), measured)
                else:
                    await ask(host, port, request_body(generator), measured)
        except (ValueError, OSError, TimeoutError) as error:
            measured.errors.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.1)


async def load(url: str, clients: int, seconds: float, process: int, hostile: bool) -> tuple[Measured, float, int]:
    """Everything that the clients saw, how long it took, and the server's memory early on."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    await ask(host, port, request_body(random.Random(-1)), Measured())  # what is made ready at the first request
    measured, began = Measured(), time.perf_counter()
    tasks = [
        asyncio.create_task(client(number, host, port, began + seconds, measured, hostile)) for number in range(clients)
    ]
    await asyncio.sleep(min(10.0, seconds / 2))
    early = resident(process)
    await asyncio.gather(*tasks)
    return measured, time.perf_counter() - began, early


def resident(process: int) -> int:
    """MiB of memory that a process holds."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) // 1024


def held(url: str) -> dict[str, float]:
    """What the server says it holds, by the names of its metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def percentiles(values: list[float]) -> dict[str, float]:
    """Milliseconds."""
    cuts = statistics.quantiles(values, n=100) if len(values) > 1 else [0.0] * 99
    return {f"p{share}": round(1000 * cuts[share - 1], 1) for share in (50, 90, 99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", type=Path, help="a checkpoint, a Hugging Face folder or a .gguf file")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--quick", action="store_true", help="8 clients for 10 seconds")
    parser.add_argument("--hostile", action="store_true", help="schemas of 3,000 properties among the requests")
    options = parser.parse_args()
    clients, seconds = (8, 10.0) if options.quick else (options.clients, options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or make_model(Path(folder), options.device)
        command = [sys.executable, "-m", "ingot", "serve", str(model), "--port", "0", "--device", options.device]
        command += ["--slots", str(clients), "--length", str(options.length), "--queue", str(clients)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                print(process.stdout.readline().rstrip())
                url = process.stdout.readline().split()[2].removesuffix("/v1")
                measured, took, early = asyncio.run(load(url, clients, seconds, process.pid, options.hostile))
                after, late = held(url), resident(process.pid)
            finally:
                process.terminate()
                code = process.wait(PATIENCE)
    results = {
        "clients": clients,
        "seconds": round(took, 1),
        "answers": measured.answers,
        "tokens_per_second": round(measured.tokens / took),
        "first_token_ms": percentiles(measured.first),
        "between_tokens_ms": percentiles(measured.between),
        "errors": len(measured.errors),
        "hostile_answered": measured.held,
        "hostile_refused": measured.refused,
        "leaked_pages": int(after["ingot_cache_pages_used"]),
        "leaked_requests": int(after["ingot_requests_active"] + after["ingot_requests_waiting"]),
        "shared_prompt_tokens": round(
            after["ingot_prefix_shared_tokens_total"] / after["ingot_prompt_tokens_total"], 2
        ),
        "memory_early_mib": early,
        "memory_end_mib": late,
        "exit_code": code,
    }
    for name, value in results.items():
        print(f"{name:22} {value}")
    for error in measured.errors[:5]:
        print(f"  {error}")
    print(json.dumps({"benchmark": "serving", "device": options.device, "results": [results]}))


if __name__ == "__main__":
    main()
