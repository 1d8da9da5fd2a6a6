"""The real SmolLM2-135M-Instruct: the same numbers and the same words as transformers gives on the same weights."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from ingot.checkpoints.convert import export_gguf
from ingot.checkpoints.gguf.read import read_gguf
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message
from tests.checkpoints.gguf import llama_cpp

QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "Write a haiku about the sea.",
    "How many legs does a spider have?",
    "Explain gravity to a child.",
    "Translate 'good morning' into Spanish.",
    "What is 12 times 3?",
    "Who wrote Romeo and Juliet?",
    "List two uses of iron.",
    "Is the sun a star?",
)
BEGINNINGS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time",
    "In 1969, the first",
    "Water boils at",
    "The three primary colours are",
    "import numpy as np\n",
    "Dear Sir or Madam,",
    "Q: What is DNA?\nA:",
    "The quick brown fox",
)
NEW_TOKENS = 24
WINDOW = 512


@pytest.fixture(scope="module")
def ours(smollm2: Path) -> Transformer:
    return read_gguf(smollm2).eval()


def perplexity(logits_of: Any, tokens: torch.Tensor) -> float:
    """exp of the mean loss over windows of the text."""
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, WINDOW):
            window = tokens[start : start + WINDOW + 1]
            total += float(cross_entropy(logits_of(window[None, :-1])[0].double(), window[1:], reduction="sum"))
            count += len(window) - 1
    return math.exp(total / count)


@pytest.mark.slow  # transformers takes twenty seconds to unpack them; test_read.py has small files of the same kinds
def test_the_weights_compute_what_transformers_computes(
    ours: Transformer, peer_weights: dict[str, NDArray[np.float32]]
) -> None:
    """With weights that the `gguf` package read, put into LlamaForCausalLM by hand."""
    weights = peer_weights
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "model.norm.weight": weights["output_norm.weight"],
    }
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for layer in range(30):
        stem = f"model.layers.{layer}."
        state |= {f"{stem}{name}.weight": weights[f"blk.{layer}.{part}.weight"] for part, name in names.items()}
        for part, heads in (("q", 9), ("k", 3)):
            rows = weights[f"blk.{layer}.attn_{part}.weight"].reshape(heads, 32, 2, 576)
            state[f"{stem}self_attn.{part}_proj.weight"] = rows.swapaxes(1, 2).reshape(heads * 64, 576)
    theirs = theirs.to_empty(device="cpu")
    theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)  # its buffer is no weight
    assert ours.tokenizer is not None
    tokens = torch.tensor([ours.tokenizer.encode("The capital of France is Paris, and 2 + 2 = 4.\n" * 8)])
    with torch.no_grad():
        expected, found = theirs.eval()(tokens).logits, ours(tokens)
    assert (found - expected).abs().max() < 2e-4 * expected.abs().max()
    assert ours.tokenizer.piece(int(found[0, 4].argmax())) == " Paris"


@pytest.mark.slow
def test_a_real_answer(ours: Transformer) -> None:
    assert ours.tokenizer is not None
    chat = ChatFormat(ours.tokenizer)
    prompt = chat.prompt([Message("user", QUESTIONS[0])])
    [completion] = Engine(ours, slots=1, length=128).complete(
        [prompt], [Sampling(max_new_tokens=24, temperature=0.0, stop_tokens=chat.stop_tokens)]
    )
    answer = chat.parse(list(completion.tokens))
    assert answer.content == "The capital of France is Paris."
    assert answer.problems == [], "it ended its turn itself"


@pytest.mark.slow  # writes the 135M parameters in float32, 540 MB
@pytest.mark.timeout(600)
def test_llama_cpp_computes_the_same_with_our_file(ours: Transformer, tmp_path: Path) -> None:
    assert ours.tokenizer is not None
    path = export_gguf(ours, tmp_path / "smollm2.gguf")
    chat = ChatFormat(ours.tokenizer)
    prompt = chat.prompt([Message("user", QUESTIONS[0])])
    with torch.no_grad():
        expected = ours(torch.tensor([prompt]))[0].numpy()
    found = llama_cpp.logits(path, prompt)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
    model = llama_cpp.open_file(path)
    text = ours.tokenizer.decode(prompt)
    assert list(model.get_vocab().tokenize(text, False, True)) == prompt, (
        "with the names of special tokens read as such"
    )


@pytest.fixture(scope="module")
def theirs(smollm2: Path) -> Any:
    """The model as transformers itself reads the file."""
    return AutoModelForCausalLM.from_pretrained(smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32).eval()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_words_as_transformers(ours: Transformer, theirs: Any) -> None:
    assert ours.tokenizer is not None
    chat = ChatFormat(ours.tokenizer)
    prompts = [chat.prompt([Message("user", question)]) for question in QUESTIONS]
    prompts += [ours.tokenizer.encode(text) for text in BEGINNINGS]
    sampling = Sampling(max_new_tokens=NEW_TOKENS, temperature=0.0, stop_tokens=chat.stop_tokens)
    completions = Engine(ours, slots=4, length=128).complete(prompts, [sampling] * len(prompts))
    for prompt, completion in zip(prompts, completions, strict=True):
        out = theirs.generate(
            torch.tensor([prompt]),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=list(chat.stop_tokens),
            pad_token_id=0,
        )
        assert list(completion.tokens) == out[0, len(prompt) :].tolist(), ours.tokenizer.decode(prompt)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_perplexity_as_transformers(ours: Transformer, theirs: Any, shared_data: Path) -> None:
    """On the first 4096 tokens of WikiText-2's validation text."""
    assert ours.tokenizer is not None
    with gzip.open(shared_data / "wikitext2/valid.txt.gz", "rt", encoding="utf-8") as file:
        tokens = torch.tensor(ours.tokenizer.encode(file.read(40_000)))[: 8 * WINDOW + 1]
    assert len(tokens) == 8 * WINDOW + 1
    expected, found = perplexity(lambda window: theirs(window).logits, tokens), perplexity(ours, tokens)
    assert 10 < found < 60
    assert abs(found - expected) < 1e-4 * expected
