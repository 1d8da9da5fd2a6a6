"""Continues one text: a prompt through an engine of its own."""

from __future__ import annotations

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError, IngotError


def generate(
    model: Transformer,
    prompt: str,
    *,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
) -> str:
    """The text with which the model goes on from `prompt`, up to the end of the text or `max_new_tokens`.

    Temperature 0 takes the likeliest token at each step; the same seed gives the same text. The continuation also ends
    where the model's context is full.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ArtifactError(
            "the model has no tokenizer, so it cannot read text",
            fix="load it with ingot.load(PATH), or set model.tokenizer",
        )
    tokens = [*tokenizer.opening, *tokenizer.encode(prompt)]
    context = model.config.context
    if len(tokens) >= context:
        raise IngotError(
            f"the prompt has {len(tokens)} tokens, which leaves no room in the model's context of {context}",
            place="generate",
            fix="shorten the prompt",
        )
    ends = tokenizer.ends
    sampling = Sampling(max_new_tokens, temperature, top_p, top_k, stop_tokens=ends, seed=seed)
    engine = Engine(model, slots=1, length=max(2, min(context, len(tokens) + max_new_tokens)))
    [completion] = engine.complete([tokens], [sampling])
    return tokenizer.decode(token for token in completion.tokens if token not in ends)
