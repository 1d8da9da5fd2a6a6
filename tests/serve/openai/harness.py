"""A server in this process: uvicorn in a thread on a free port, an engine in another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx2 as httpx
from openai import OpenAI

from ingot.inference.engine import Engine
from ingot.inference.runner import EngineRunner
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.serve.openai.run import Server, address, listen
from ingot.serve.openai.service import Service
from ingot.tokens.tokenizer import Tokenizer
from tests.making.processes import wait_until
from tests.serve.speaker import speaker_config

PATIENCE = 20.0  # seconds that any wait of these tests may take
http = httpx.Client(
    timeout=PATIENCE, verify=False
)  # reading the certificates anew for each request takes longer than it


class SlowEngine(Engine):
    """An engine whose steps take long enough to do something in between."""

    def step(self) -> None:
        time.sleep(0.01)
        super().step()


@dataclass
class Running:
    """A server that answers."""

    url: str
    service: Service
    server: Server
    thread: threading.Thread

    @cached_property
    def client(self) -> OpenAI:
        """The official client, which asks once and does not wait for ever."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.service.key or "none", max_retries=0, timeout=PATIENCE)

    @property
    def runner(self) -> EngineRunner:
        return self.service.runner


def untrained(tokenizer: Tokenizer, context: int = 1024, heads: tuple[str, ...] = ()) -> Transformer:
    """A model that writes noise."""
    model = Transformer(speaker_config(tokenizer, context).model_copy(update={"heads": heads}))
    initialise(model, seed=0)
    model.tokenizer = tokenizer
    return model


@contextmanager
def serving(engine: Engine, *, limit: int = 64, **options: Any) -> Iterator[Running]:
    """A server over `engine` until the end of the block."""
    assert engine.model.tokenizer is not None
    with closing(listen("127.0.0.1", 0)) as socket, EngineRunner(engine, limit=limit) as runner:
        service = Service(runner, engine.model.tokenizer, "speaker", **options)
        server = Server(service, drain=5.0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        yield Running(address(socket), service, server, thread)
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
