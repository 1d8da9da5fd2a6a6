"""An environment of `verifiers` plays against our server, and records exactly the tokens that our engine saw and wrote.

`verifiers` 0.4 wants other versions of `openai` and `mcp` than ours, so it stands in an environment of its own, which
`make test-all` makes and whose Python INGOT_VERIFIERS_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message
from tests.serve.openai.harness import Running

PYTHON = os.environ.get("INGOT_VERIFIERS_PYTHON", "")
CLIENT = Path(__file__).with_name("verifiers_client.py")
QUESTIONS = ("Bye", "Hello", "What is 12*34?")  # those of the client, and how it samples
SEED, TOKENS, TEMPERATURE = 7, 24, 1.0
SECONDS = 180
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="INGOT_VERIFIERS_PYTHON does not name a Python that has verifiers 0.4"),
]


@pytest.fixture
def recorded(server: Running, chat_format: ChatFormat, tmp_path: Path) -> list[dict[str, Any]]:
    """What `verifiers` recorded, task by task."""
    for name, content in chat_format.tokenizer.to_files().items():
        (tmp_path / name).write_bytes(content)
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [PYTHON, str(CLIENT), server.url, str(tmp_path)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_what_verifiers_records_is_what_the_engine_saw_and_wrote(
    recorded: list[dict[str, Any]], speaker: Transformer, chat_format: ChatFormat
) -> None:
    engine = Engine(speaker, slots=1)
    sampling = Sampling(TOKENS, TEMPERATURE, stop_tokens=tuple(chat_format.stop_tokens), seed=SEED, raw_logprobs=True)
    assert len(recorded) == len(QUESTIONS)
    turns = 0
    for question, trace in zip(QUESTIONS, recorded, strict=True):
        assert trace["errors"] == [] and trace["branches"]
        for branch in trace["branches"]:
            start = 0
            for sampled, run in groupby(branch["sampled"]):
                end = start + len(list(run))
                if sampled:
                    (mine,) = engine.complete([branch["tokens"][:start]], [sampling])
                    assert branch["tokens"][start:end] == mine.tokens
                    assert branch["logprobs"][start:end] == pytest.approx(mine.logprobs, abs=1e-4)
                    turns += 1
                elif start == 0:
                    prompt = chat_format.prompt([Message("user", question)], thinking=True)
                    assert branch["tokens"][: len(prompt)] == prompt
                start = end
    assert turns >= 2 * len(QUESTIONS), "two turns of each conversation"
