"""Log-probabilities and entropies of finished sequences against transformers, one unpadded sequence at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.post import policy
from ingot.post.policy import chat_format, sequence_logprobs
from ingot.post.processes import ALONE
from ingot.post.scorer import Scorer
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective
from ingot.workspace.errors import ArtifactError
from tests.post.making import random_tokens, tiny_model
from tests.post.peers import llama


@pytest.mark.parametrize(("temperature", "places"), [(1.0, 1 << 24), (0.6, 1 << 24), (1.0, 100)])
def test_sequence_logprobs_equal_transformers(
    tokenizer: Tokenizer, temperature: float, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More sequences than one pass of rows takes, of all lengths, packed in rows of 40; also more tokens than can be counted."""
    monkeypatch.setattr(policy, "PLACES", places)
    model = tiny_model(tokenizer)
    peer = llama(model)
    generator = torch.Generator().manual_seed(0)
    lengths = [2, 41, 3, *range(5, 41), *[30] * 12]
    sequences = [TokenSequence(random_tokens(length, tokenizer.vocabulary_size, generator)) for length in lengths]
    result = sequence_logprobs(model, sequences, 40, temperature)
    passes = make_passes(model, Objective(()), torch.device("cpu"), torch.float32)
    both, entropies = Scorer(passes, ALONE, 40).logprobs_and_entropies(sequences, temperature)
    for row, one in zip(both, result, strict=True):
        assert row == pytest.approx(one, abs=1e-6)
    for sequence, values, entropy in zip(sequences, result, entropies, strict=True):
        ids = torch.tensor([sequence.tokens])
        with torch.no_grad():
            table = (peer(ids).logits[0, :-1].double() / temperature).log_softmax(-1)
        expected = table.gather(-1, ids[0, 1:, None])[:, 0].tolist()
        assert values[0] == 0
        assert values[1:] == pytest.approx(expected, abs=1e-5)
        assert entropy[0] == 0
        assert entropy[1:] == pytest.approx(torch.distributions.Categorical(logits=table).entropy().tolist(), abs=1e-5)


def test_scoring_compiles_nothing(tokenizer: Tokenizer) -> None:
    """Other rows every time would be other code every time; training goes on with its own."""
    model, generator = tiny_model(tokenizer), torch.Generator().manual_seed(0)
    sequences = [TokenSequence(random_tokens(length, tokenizer.vocabulary_size, generator)) for length in (20, 7)]
    expected = sequence_logprobs(model, sequences, 40)
    made: list[Any] = []

    def backend(graph: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        made.append(graph)
        return graph.forward

    for block in model.blocks:
        block.compile(backend=backend, dynamic=False)
    assert sequence_logprobs(model, sequences, 40) == expected and not made
    with torch.no_grad():
        model(torch.tensor([sequences[0].tokens]))
    assert made, "outside of scoring blocks are compiled as before"


def test_a_model_without_tokenizer_is_refused(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer)
    model.tokenizer = None
    with pytest.raises(ArtifactError, match="no tokenizer"):
        chat_format(model)
