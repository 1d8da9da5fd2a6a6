"""Scores a given text: log-probabilities of a prompt's own tokens, for `echo` with `logprobs` and for `prompt_logprobs`.

    log p(t_i | t_0 … t_{i-1}) = log softmax(logits_{i-1})[t_i],   none for the first token

Evaluation harnesses compare answers by it. One pass without a cache, in the engine's thread between two steps; the
vocabulary is looked at for `STRIP` positions at a time, since all of them at once could fill the memory.

Shapes: T tokens, D width, S positions of a strip, V vocabulary, K likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ingot.model.transformer import Transformer

STRIP = 128
Score = tuple[float | None, list[tuple[int, float]]]  # of a token; of the likeliest at its position


@torch.inference_mode()
def prompt_scores(model: Transformer, tokens: Sequence[int], likeliest: int) -> list[Score]:
    """The log-probability of each token after those before it, and the likeliest tokens at its position."""
    scores: list[Score] = [(None, [])]
    tokens_1T = torch.tensor([tokens], device=model.embedding.weight.device)
    states_TD = model.hidden(tokens_1T)[0, :-1]
    for start in range(0, len(tokens) - 1, STRIP):
        logprobs_SV = model.head(states_TD[start : start + STRIP]).float().log_softmax(-1)
        own_S = logprobs_SV.gather(-1, tokens_1T[0, start + 1 : start + 1 + STRIP, None])[:, 0].tolist()
        values_SK, ids_SK = logprobs_SV.topk(min(likeliest, logprobs_SV.shape[-1]), dim=-1)
        for logprob, ids, values in zip(own_S, ids_SK.tolist(), values_SK.tolist(), strict=True):
            scores.append((logprob, list(zip(ids, values, strict=True))))
    return scores
