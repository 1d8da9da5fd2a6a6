"""The routes of the OpenAI-compatible server, and their description in /openapi.json."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import PlainTextResponse, Response

from ingot.model.transformer import REWARD_HEAD
from ingot.serve.openai import responses
from ingot.serve.openai.answer import answer
from ingot.serve.openai.chat import ChatEndpoint
from ingot.serve.openai.completions import CompletionEndpoint
from ingot.serve.openai.errors import ApiError, JsonAnswer, handle_errors
from ingot.serve.openai.gate import OPEN, Gate
from ingot.serve.openai.generate import GenerateEndpoint
from ingot.serve.openai.generation import ClientGone
from ingot.serve.openai.metrics import CONTENT_TYPE
from ingot.serve.openai.pooling import pooling
from ingot.serve.openai.prompts import make_prompt
from ingot.serve.openai.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    GenerateRequest,
    PoolingRequest,
    TokenizeRequest,
)
from ingot.serve.openai.service import Service
from ingot.workspace.version import VERSION

CLIENT_CLOSED = 499  # nginx's code; the client has gone and does not read it
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": responses.Error, "description": text}
    for status, text in {
        400: "The request is not valid.",
        401: "The key is missing or wrong.",
        403: "The Host header is not a name of this server.",
        404: "There is no such model.",
        405: "Another method is wanted.",
        413: "The body is too large.",
        429: "Too many requests are waiting; see Retry-After.",
        500: "The model failed.",
        503: "The server is shutting down.",
    }.items()
}


def answer_of(model: type, *, stream: bool = False) -> dict[int | str, dict[str, Any]]:
    """The descriptions of all answers of a route."""
    good: dict[str, Any] = {"model": model}
    if stream:
        good["content"] = {"text/event-stream": {}}
    return {200: good, **ERRORS}


def create_app(service: Service) -> FastAPI:
    """The application; the caller runs it, and closes its runner."""
    app = FastAPI(title="Ingot", version=VERSION, docs_url=None, redoc_url=None, default_response_class=JsonAnswer)
    handle_errors(app)

    @app.exception_handler(ClientGone)
    async def gone(_: Request, error: ClientGone) -> Response:
        service.metrics.abandoned.inc()
        return Response(status_code=CLIENT_CLOSED)

    @app.post("/v1/chat/completions", responses=answer_of(responses.ChatCompletion, stream=True))
    async def post_chat(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        return await answer(ChatEndpoint(service, body), request)

    @app.post("/v1/completions", responses=answer_of(responses.TextCompletion, stream=True))
    async def post_completion(body: CompletionRequest, request: Request) -> Response:
        """Go on from a text."""
        return await answer(CompletionEndpoint(service, body), request)

    @app.post("/inference/v1/generate", responses=answer_of(responses.TokenCompletion))
    async def post_generate(body: GenerateRequest, request: Request) -> Response:
        """Go on from tokens."""
        return await answer(GenerateEndpoint(service, body), request)

    def card() -> dict[str, Any]:
        fields = {"id": service.name, "object": "model", "created": service.created, "owned_by": "ingot"}
        return fields | {"max_model_len": service.length}

    @app.get("/v1/models", responses=answer_of(responses.ModelList))
    async def get_models() -> Response:
        """The model that is served."""
        return JsonAnswer({"object": "list", "data": [card()]})

    @app.get("/v1/models/{name:path}", responses=answer_of(responses.ModelCard))
    async def get_model(name: str) -> Response:
        """One model."""
        service.check_model(name)
        return JsonAnswer(card())

    @app.post("/tokenize", responses=answer_of(responses.Tokens))
    async def tokenize(body: TokenizeRequest) -> Response:
        """The tokens of a text, or of a conversation as the model reads it."""
        service.check_model(body.model)
        tokens = await asyncio.to_thread(_tokens, service, body)
        pieces = [service.tokenizer.piece(token) for token in tokens] if body.return_token_strs else None
        counts = {"count": len(tokens), "max_model_len": service.length}
        return JsonAnswer(counts | {"tokens": tokens, "token_strs": pieces})

    @app.post("/detokenize", responses=answer_of(responses.Detokenized))
    async def detokenize(body: DetokenizeRequest) -> Response:
        """The text of tokens."""
        service.check_model(body.model)
        size = service.tokenizer.vocabulary_size
        if wrong := [token for token in body.tokens if token >= size]:
            raise ApiError(400, f"token {wrong[0]} is not in the vocabulary of {size}", param="tokens")
        return JsonAnswer({"prompt": service.tokenizer.decode(body.tokens)})

    if REWARD_HEAD in service.runner.engine.model.config.heads:

        @app.post("/pooling", responses=answer_of(responses.PoolingList))
        async def post_pooling(body: PoolingRequest, request: Request) -> Response:
            """What the reward model gives for texts or for a conversation."""
            return await pooling(service, body, request)

    @app.get("/health", responses=answer_of(responses.Health))
    async def health() -> Response:
        """Whether requests are taken."""
        if not service.runner.taking:
            raise ApiError(503, "no requests are taken", code="draining")
        return JsonAnswer({"status": "ok"})

    @app.get("/metrics", response_class=PlainTextResponse, responses=ERRORS)
    async def metrics() -> Response:
        """Counters and latencies for Prometheus."""
        text = service.metrics.render(asdict(service.runner.stats), service.name)
        return Response(text, media_type=CONTENT_TYPE)

    app.openapi = lambda: describe(app, locked=service.key is not None)  # type: ignore[method-assign]
    paths = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    app.add_middleware(Gate, service=service, paths=paths)
    return app


def _tokens(service: Service, body: TokenizeRequest) -> list[int]:
    if body.messages is None:
        opening = service.tokenizer.opening if body.add_special_tokens else []
        return [*opening, *service.tokenizer.encode(body.prompt or "")]
    if service.chat is None:
        raise ApiError(400, "the model has no chat template; send a prompt", param="messages")
    options = body.chat_template_kwargs
    thinking = options is None or options.enable_thinking is not False
    return make_prompt(service.chat, body.messages, body.tools or [], thinking).tokens


def describe(app: FastAPI, *, locked: bool) -> dict[str, Any]:
    """The description without FastAPI's own 422, which this server answers with 400, and with the key if there is one."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                if locked and path not in OPEN:
                    operation["security"] = [{"key": []}]
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        if locked:
            schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = schema
    return app.openapi_schema
