"""`ingot serve`: loads a model, serves it, and shuts down in good order.

The first SIGTERM or Ctrl-C drains: new requests are refused with 503 while running ones get `drain` seconds to come to
their end, then the process ends. A second signal ends it at once. Without a key the server listens on this machine only, and
there it answers only to this machine's names (hosts.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server
from socket import socket as Socket

import torch
import uvicorn
from fastapi import FastAPI

from ingot.checkpoints.checkpoint import load_model
from ingot.inference.divided.open import devices_from, open_divided
from ingot.inference.engine import Engine
from ingot.inference.quantised.pack import Bits, quantise_for_sampling
from ingot.inference.runner import EngineRunner
from ingot.inference.speculate.config import Speculation
from ingot.serve.hosts import Hosts, is_local
from ingot.serve.openai.app import create_app
from ingot.serve.openai.service import Service
from ingot.serve.slow_clients import PatientProtocol
from ingot.train.device import choose_device, choose_precision
from ingot.workspace.errors import ArtifactError, IngotError
from ingot.workspace.interrupt import on_signals

GROUP = 32  # inputs that share a scale in 4 bits: what small models need
SHUTDOWN = 5  # seconds that open connections get after the drain


def check_bind(host: str, key: str | None) -> None:
    """Refuse to be open to everyone."""
    if not is_local(host) and not key:
        raise IngotError(
            f"{host} can be reached from other machines, and there is no key: anyone could use the model",
            place="--host",
            fix="give --api-key KEY (or INGOT_API_KEY), or leave out --host to listen on this machine only",
        )


def listen(host: str, port: int) -> Socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET, backlog=2048)
    except OSError as error:
        problem = f"cannot listen on port {port} of {host}: {error.strerror or error}"
        raise IngotError(problem, place="--port", fix="choose another port, or stop what listens there") from error


def address(socket: Socket) -> str:
    """The address of a listening socket."""
    host, port = socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    path: Path,
    *,
    host: str,
    port: int,
    key: str | None,
    allowed_hosts: Sequence[str],
    name: str | None,
    slots: int,
    length: int | None,
    queue: int,
    deadline: float,
    drain: float,
    device: str,
    precision: str,
    tensor: int,
    bits: Bits | None,
    speculate: int,
    say: Callable[[str], None],
) -> int | None:
    """Serve the model at `path` until a signal ends it; returns that signal's number."""
    check_bind(host, key)
    if tensor > 1 and (bits is not None or speculate):
        problem = f"--tensor goes with neither --bits nor --speculate: {tensor} devices hold plain weights"
        raise IngotError(problem, place="--tensor", fix="leave the others out")
    where = choose_device(device)
    devices = devices_from(where, tensor)
    held = where if tensor == 1 else torch.device("cpu")  # whole, it may fit no device
    model = load_model(path, device=held, dtype=choose_precision(precision, where)).eval()
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ArtifactError("the model has no tokenizer", place=str(path), fix="use a checkpoint that Ingot wrote")
    if length is not None and length > model.config.context:
        problem = f"{length:,} tokens, and the model's context is {model.config.context:,}: it never saw such positions"
        raise IngotError(
            problem, place="--length", fix="give less, or train it on longer rows (a stage with more context)"
        )
    called = name or path.resolve().name.removesuffix(".gguf")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if bits is not None:
        packing = quantise_for_sampling(model, bits, group=GROUP)
        held_in = "float8" if bits == "float8" else f"{bits} bits"
        say(f"weights in {held_in}: {packing.bytes_before / 1e6:,.0f} MB are now {packing.bytes_after / 1e6:,.0f} MB")
    drafts = Speculation(tokens=speculate) if speculate else None
    if tensor == 1:
        engine = Engine(model, slots=slots, length=length, speculate=drafts)
    else:
        engine = open_divided(model, devices, slots=slots, length=length)
    del model
    with closing(engine), closing(listen(host, port)) as socket, EngineRunner(engine, limit=slots + queue) as runner:
        hosts = Hosts(host, allowed_hosts)
        service = Service(runner, tokenizer, called, key=key, hosts=hosts, deadline=deadline, log=say)
        server = Server(service, drain=drain)
        syntax = None if service.chat is None else service.chat.syntax
        turns = "no chat template" if syntax is None else f"chat format {syntax.label} ({syntax.origin})"
        say(
            f"{called}: {parameters / 1e6:.1f}M parameters, {service.length:,} tokens, {slots} requests at once, {turns}"
        )
        say(f"serving at {address(socket)}/v1 (Ctrl-C ends it)")
        server.run(sockets=[socket])
        return server.ended_by


def make_config(app: FastAPI, shutdown: int) -> uvicorn.Config:
    """How uvicorn serves an app; after a stop, open connections get `shutdown` seconds."""
    return uvicorn.Config(
        app, http=PatientProtocol, log_level="warning", timeout_graceful_shutdown=shutdown, lifespan="off"
    )


class Server(uvicorn.Server):
    """uvicorn, ended by a drain: by a signal, or by `stop` from any thread."""

    def __init__(self, service: Service, *, drain: float) -> None:
        app = create_app(service)
        super().__init__(make_config(app, SHUTDOWN))
        self.ended_by: int | None = None
        self._runner, self._drain = service.runner, drain

    def stop(self) -> None:
        """Refuse new requests; end when all running requests have ended, or the time is over."""
        self._runner.stop_taking()  # from now on, not from when the thread has started
        threading.Thread(target=self._end, name="ingot-drain", daemon=True).start()

    def _end(self) -> None:
        self._runner.drain(self._drain)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Drain at the first signal, end at the second; uvicorn's own would not drain, and would end by the signal."""

        def handle(number: int) -> None:
            if self.ended_by is None:
                self.ended_by = number
                self.stop()
            else:
                self.should_exit = self.force_exit = True

        with on_signals(handle):
            yield
