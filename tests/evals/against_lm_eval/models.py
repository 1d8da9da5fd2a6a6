"""One model in lm-eval's transformers backend and in our engine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.config import EvalConfig
from ingot.evals.engine.answer import measure_together
from ingot.evals.engine.local import LocalAnswerer
from ingot.evals.engine.memory import AnswerMemory, RememberingEngine
from ingot.evals.engine.open_subject import load_local
from ingot.evals.engine.request import Request
from ingot.workspace.interrupt import StopSignal

TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
}


def write_tiny(folder: Path, shared_data: Path) -> Path:
    """A Hugging Face folder: two random layers with SmolLM2's vocabulary."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    config = LlamaConfig(
        vocab_size=49152,
        **sizes,
        **heads,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    with gzip.open(shared_data / "tokenizers/smollm2_tokenizer.json.gz", "rb") as file:
        (folder / "tokenizer.json").write_bytes(file.read())
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    template = (shared_data / "tokenizers/smollm2_chat_template.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


class Harness:
    """lm-eval's own backend."""

    def __init__(self, folder: Path, length: int | None = None) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, max_length=length, device="cpu")

    def answer(self, task: Any) -> list[Any]:
        """Answer the instances of a task, which are kept in them, too."""
        kind = task.instances[0].request_type
        answers = getattr(self.model, kind)(task.instances, disable_tqdm=True)
        for instance, answer in zip(task.instances, answers, strict=True):
            instance.resps.append(answer)
        return list(answers)


class Ours:
    """Our engine."""

    def __init__(self, folder: Path, length: int | None = None) -> None:
        self.local = load_local(EvalConfig(device="cpu", max_tokens=length, slots=8), folder)

    def subject(self, data: Path | None = None, form: Any = "text", **options: Any) -> Subject:
        tokenizer = self.local.model.tokenizer
        return Subject("model", form, StopSignal(), self.local, tokenizer, data=data, **options)

    def measure(self, suites: Sequence[Suite], subject: Subject) -> list[Measured]:
        measurings = [(suite.measure(subject), subject) for suite in suites]
        with AnswerMemory(None) as memory:
            assert self.local.model.tokenizer is not None
            engine = RememberingEngine(self.local.engine, memory)
            return measure_together(measurings, LocalAnswerer(self.local.model.tokenizer, engine, subject.stop))  # type: ignore[arg-type]

    def answer(self, requests: Sequence[Request], subject: Subject) -> list[Any]:
        """The answers to requests, without a suite."""
        found: list[Any] = []

        def asking() -> Measuring:
            found.extend((yield requests))
            return Measured()

        with AnswerMemory(None) as memory:
            assert self.local.model.tokenizer is not None
            engine = RememberingEngine(self.local.engine, memory)
            measure_together([(asking(), subject)], LocalAnswerer(self.local.model.tokenizer, engine, subject.stop))
        return found
