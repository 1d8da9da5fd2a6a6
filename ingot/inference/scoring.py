"""Scores given tokens while they are read: log p(token | all before it), and whether it was the likeliest.

The states at position t predict token t + 1. A request reads all its tokens but the last, so what it reads holds the prediction
of each. Its scores start at token `first`; what stands before is context, which requests that begin alike read once. Several
`lasts` may be asked for: the letters of a multiple-choice question need one reading together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ingot.inference.request import Request, Scoring

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer

LOGITS_AT_ONCE = 1 << 26  # numbers: 256 MiB in float32


def score_rows(model: Transformer, states_BTD: Tensor, group: Sequence[tuple[Request, int, int]]) -> None:
    """Score the rows of a pass; row i holds the states of positions `start` to `end` of its request."""
    rows, columns, targets = list[int](), list[int](), list[int]()
    kept = list[tuple[Scoring, int, bool]]()  # of each target: for whom, its place, and whether it is the last
    for row, (request, start, end) in enumerate(group):
        scoring = request.scoring
        if scoring is None:
            continue
        for place in range(max(start + 1, scoring.first), end + 1):
            last = place == len(request.prompt) - 1
            if last:
                scoring.outer.clear()
            for target in scoring.lasts if last else (request.prompt[place],):
                rows.append(row)
                columns.append(place - 1 - start)
                targets.append(target)
                kept.append((scoring, place, last))
    if not rows:
        return
    device = states_BTD.device
    states_ND = states_BTD[torch.tensor(rows, device=device), torch.tensor(columns, device=device)]
    targets_N = torch.tensor(targets, device=device)
    logprobs, likeliest, tops = list[float](), list[bool](), list[list[tuple[int, float]]]()
    most = max(scoring.likeliest for scoring, _, _ in kept)
    at_once = max(1, LOGITS_AT_ONCE // (model.config.vocabulary_size or 1))
    for states, wanted in zip(states_ND.split(at_once), targets_N.split(at_once), strict=True):
        logits_NV = model.head(states)
        chosen_N = logits_NV.gather(1, wanted[:, None])[:, 0]
        highest_N, best_N = logits_NV.max(1)
        values_NK, ids_NK = logits_NV.topk(min(most, logits_NV.shape[1]))
        # log Σ exp in place: torch's own makes two more tensors as large as the logits
        rest_N = logits_NV.sub_(highest_N[:, None]).exp_().sum(1).log_()
        logprobs += (chosen_N - highest_N - rest_N).tolist()
        likeliest += (best_N == wanted).tolist()
        values = (values_NK - highest_N[:, None] - rest_N[:, None]).tolist()
        tops += [list(zip(*pair, strict=True)) for pair in zip(ids_NK.tolist(), values, strict=True)]
    for (scoring, place, last), logprob, best, top in zip(kept, logprobs, likeliest, tops, strict=True):
        if scoring.likeliest:
            scoring.tops[place] = top[: scoring.likeliest]
        if last:
            scoring.outer.append((logprob, best))
        else:
            scoring.inner[place] = (logprob, best)
