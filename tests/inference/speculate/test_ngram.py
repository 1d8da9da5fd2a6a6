"""N-gram look-up against a search through the text, and against transformers' prompt look-up where the two must agree."""

from __future__ import annotations

import random

import pytest
import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.inference.speculate.ngram import NgramDrafter, NgramIndex


def searched(text: list[int], longest: int, shortest: int, count: int) -> list[int]:
    """The definition: from the longest suffix on, its latest earlier place; what follows there, copied one by one."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == text[len(text) - length :]:
                result = list(text)
                for step in range(count):
                    result.append(result[start + length + step])
                return result[len(text) :]
    return []


@pytest.mark.parametrize(("longest", "shortest"), [(1, 1), (3, 1), (4, 2), (5, 5)])
def test_drafts_are_those_of_a_search(longest: int, shortest: int) -> None:
    chance, found = random.Random(longest), 0
    for _ in range(40):
        index, text = NgramIndex(longest, shortest), list[int]()
        for _ in range(30):
            new = [chance.randrange(3) for _ in range(chance.randint(1, 3))]
            index.extend(new)
            text += new
            count = chance.randint(1, 6)
            expected = searched(text, longest, shortest, count)
            assert index.propose(count) == expected
            found += bool(expected)
    assert found > 100


def test_worked_by_hand() -> None:
    index = NgramIndex(longest=3, shortest=2)
    index.extend([7, 1, 2, 3, 9, 9, 2, 3])
    assert index.propose(3) == [9, 9, 2]  # 2 3 stood before; 9 2 3 did not
    index.extend([9])
    assert index.propose(2) == [9, 2]
    index.extend([4])
    assert index.propose(2) == []
    index.extend([5, 6, 5, 6])
    assert index.propose(5) == [5, 6, 5, 6, 5]  # the copy reads on in itself


def test_transformers_proposes_the_same_where_a_suffix_stood_there_once() -> None:
    """It takes the first place and we the latest: one suffix in one place leaves no choice."""
    chance, compared = random.Random(5), 0
    for _ in range(200):
        text = [chance.randrange(12) for _ in range(chance.randint(10, 60))]
        places = [start for start in range(len(text) - 2) if text[start : start + 2] == text[-2:]]
        if len(places) != 1 or places[0] + 6 > len(text):
            continue
        peer = PromptLookupCandidateGenerator(
            eos_token_id=torch.tensor([99]), num_output_tokens=4, max_matching_ngram_size=2, max_length=1000
        )
        theirs = peer.get_candidates(torch.tensor([text]))[0][0, len(text) :].tolist()
        index = NgramIndex(longest=2, shortest=2)
        index.extend(text)
        assert index.propose(4) == theirs
        compared += 1
    assert compared > 20


def test_a_request_is_followed_from_prompt_to_text() -> None:
    drafter = NgramDrafter(Speculation("ngram", longest=2, shortest=2))
    request = Request([1, 2, 3, 4, 1], Sampling(), limit=9)
    assert drafter.propose(request, 3) == []
    request.tokens += [2]
    assert drafter.propose(request, 3) == [3, 4, 1]
    request.tokens += [3, 4]
    assert drafter.propose(request, 2) == [1, 2]
