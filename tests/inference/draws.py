"""Helpers of the tests of drawing: one call, and the distribution that transformers would draw from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import transformers as hf
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.draw import Drawn, draw
from ingot.inference.modify import History
from ingot.inference.sampling import Sampling


def draw_once(
    logits: Tensor, samplings: Sequence[Sampling], steps: Sequence[int], histories: Sequence[History] | None = None
) -> Drawn:
    """One token of each row."""
    controls = Controls(samplings, logits.device, logits.shape[-1], histories)
    return draw(logits, controls, torch.tensor(steps))


def transformers_distribution(logits: Tensor, sampling: Sampling, history: History = ((), ())) -> Tensor:
    """The probabilities [V], float64, after transformers' processors and warpers in Ingot's order.

    Frequency and presence penalties are not among them.
    """
    prompt, text = history
    ids = torch.tensor([[*prompt, *text]], dtype=torch.int64)
    processors = hf.LogitsProcessorList()
    if sampling.logit_bias:
        processors.append(hf.SequenceBiasLogitsProcessor({(token,): bias for token, bias in sampling.logit_bias}))
    if sampling.allowed_tokens is not None:
        allowed = list(sampling.allowed_tokens)
        processors.append(hf.PrefixConstrainedLogitsProcessor(lambda batch, sent: allowed, num_beams=1))
    if sampling.repetition_penalty != 1:
        processors.append(hf.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.min_new_tokens and sampling.stop_tokens:
        stops = list(sampling.stop_tokens)
        processors.append(hf.MinNewTokensLengthLogitsProcessor(len(prompt), sampling.min_new_tokens, stops))
    processors.append(hf.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(hf.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(hf.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        processors.append(hf.MinPLogitsWarper(sampling.min_p))
    return torch.as_tensor(processors(ids, logits[None]))[0].double().softmax(-1)
