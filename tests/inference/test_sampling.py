"""What a request may ask for, and what is refused with a reason."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from ingot.inference.sampling import Sampling
from ingot.workspace.errors import IngotError


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": 1e-300}, "temperature is 1e-300"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -3}, "top_k is -3"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": math.nan}, "min_p is nan"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"repetition_penalty": math.inf}, "repetition_penalty is inf"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty is 1e-300"),
        ({"frequency_penalty": math.nan}, "frequency_penalty is nan"),
        ({"presence_penalty": -math.inf}, "presence_penalty is -inf"),
        ({"presence_penalty": 1e39}, "presence_penalty is 1e\\+39"),
        ({"min_new_tokens": -1}, "min_new_tokens is -1"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens is 9"),
        ({"top_logprobs": -1}, "top_logprobs is -1"),
        ({"stop_strings": ("a", "")}, "stop_strings"),
        ({"logit_bias": ((-1, 2.0),)}, "logit_bias"),
        ({"logit_bias": ((1, 2.0), (1, 3.0))}, "logit_bias"),
        ({"logit_bias": ((1, -math.inf),)}, "logit_bias"),
        ({"allowed_tokens": ()}, "allowed_tokens is \\(\\)"),
        ({"allowed_tokens": (3, -2)}, "allowed_tokens"),
    ],
)
def test_impossible_samplings_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(IngotError, match=said) as caught:
        Sampling(**wrong)  # type: ignore[arg-type]
    assert caught.value.place == "sampling" and caught.value.fix


def test_equal_samplings_are_one_key() -> None:
    first = Sampling(logit_bias=((3, -1.0),), stop_strings=("\n",), allowed_tokens=(3, 4))
    second = Sampling(logit_bias=((3, -1.0),), stop_strings=("\n",), allowed_tokens=(3, 4))
    assert {first: "found"}[second] == "found"
    assert first != Sampling(logit_bias=((3, -2.0),), stop_strings=("\n",), allowed_tokens=(3, 4))


@pytest.mark.parametrize("option", [{"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}])
def test_a_greedy_request_truncates_nothing(option: dict[str, float]) -> None:
    assert Sampling(**option).truncates  # type: ignore[arg-type]
    assert not Sampling(temperature=0.0, **option).truncates  # type: ignore[arg-type]


def test_a_request_is_described_without_tensor_libraries() -> None:
    code = "import sys, ingot.inference.sampling; print({'torch', 'numpy'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
        == "set()\n"
    )
