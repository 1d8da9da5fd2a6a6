"""Hugging Face folders against `transformers` itself: logits, keys, shards, spellings, generation, chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import ingot
from ingot.checkpoints.convert import export_model
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import RopeConfig
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.tokenizer import Tokenizer
from tests.model.tiny import VOCABULARY, attention, config, random_model, random_tokens

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

NORMED = attention(query_key_norm="head")
SHAPES = [
    pytest.param(name, shape, id=f"{name}-{number}")
    for number, (name, shape) in enumerate(
        [
            ("llama", config()),
            ("llama", config(attention(heads=3, key_value_heads=1, head_width=10), depth=3, tied_embeddings=False)),
            ("qwen3", config(NORMED)),
            ("qwen3", config(NORMED, NORMED.model_copy(update={"window": 3}), depth=4)),
            ("qwen2", config(attention(query_key_value_bias=True), tied_embeddings=False)),
            ("smollm3", config(attention(rope=RopeConfig(base=5e6)), attention(rope=None), depth=5)),
        ]
    )
]


def load_peer(folder: Path) -> Any:
    """The model as transformers loads it; every key must have been found and used."""
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert {name: keys for name, keys in found.items() if keys} == {}
    return model


@pytest.mark.parametrize(("model_type", "shape"), SHAPES)
@pytest.mark.parametrize("largest", [5_000_000_000, 12_000], ids=["one file", "shards"])
def test_transformers_computes_the_same_logits(
    model_type: str, shape: ModelConfig, largest: int, tmp_path: Path
) -> None:
    model = random_model(shape, scale=0.2)
    export_model(model, tmp_path / "model", max_shard_bytes=largest)
    assert (len(list((tmp_path / "model").glob("*.safetensors"))) > 1) == (largest == 12_000)
    peer = load_peer(tmp_path / "model")
    assert peer.config.model_type == model_type
    tokens = random_tokens(2, 19)
    torch.testing.assert_close(model(tokens), peer(tokens).logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("model_type", "shape"), SHAPES)
def test_a_round_trip_returns_the_same_bits(model_type: str, shape: ModelConfig, tmp_path: Path) -> None:
    model = random_model(shape)
    export_model(model, tmp_path / "model")
    again = ingot.load(tmp_path / "model")
    assert again.tokenizer is None
    state = model.state_dict()
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())
    assert torch.equal(again(random_tokens(2, 9)), model(random_tokens(2, 9)))
    export_model(again, tmp_path / "again")
    for file in sorted((tmp_path / "model").iterdir()):
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def peer_model(**changes: Any) -> Any:
    """A random Llama that transformers made."""
    parts = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 123.0},
    }
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**parts, **changes})).float()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard", ["10GB", "12KB"])
def test_a_folder_that_transformers_wrote_is_read(tied: bool, shard: str, tmp_path: Path) -> None:
    peer = peer_model(tie_word_embeddings=tied)
    peer.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "12KB")
    model = ingot.load(tmp_path)
    tokens = random_tokens(2, 21)
    torch.testing.assert_close(model(tokens), peer(tokens).logits, rtol=0, atol=2e-5)
    assert model.config.tied_embeddings == tied


def test_the_shards_and_the_index_are_those_of_transformers(tmp_path: Path) -> None:
    """Written again with the same limit: the same file names, each tensor in a file that the index names, the same sum."""
    peer_model().save_pretrained(tmp_path / "theirs", max_shard_size="12KB")
    export_model(tmp_path / "theirs", tmp_path / "ours", max_shard_bytes=12_000)
    index = json.loads((tmp_path / "ours" / "model.safetensors.index.json").read_text())
    theirs = json.loads((tmp_path / "theirs" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == theirs["metadata"]
    assert index["weight_map"].keys() == theirs["weight_map"].keys()
    files = sorted(file.name for file in (tmp_path / "ours").glob("*.safetensors"))
    assert files == [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    for file in files:
        tensors = load_file(tmp_path / "ours" / file)
        assert tensors.keys() == {name for name, home in index["weight_map"].items() if home == file}
        assert sum(tensor.nbytes for tensor in tensors.values()) <= 12_000


@pytest.mark.parametrize("spelling", ["rope_theta", "rope_scaling null", "rope_parameters"])
def test_old_and_new_spellings_of_the_rope_base(spelling: str, tmp_path: Path) -> None:
    peer = peer_model()
    peer.save_pretrained(tmp_path)
    source = json.loads((tmp_path / "config.json").read_text())
    del source["rope_parameters"]
    source["torch_dtype"] = source.pop("dtype")
    source |= {
        "rope_theta": {"rope_theta": 123.0},
        "rope_scaling null": {"rope_theta": 123.0, "rope_scaling": None},
        "rope_parameters": {"rope_parameters": {"rope_theta": 123.0, "rope_type": "default"}},
    }[spelling]
    (tmp_path / "config.json").write_text(json.dumps(source))
    tokens = random_tokens(2, 21)
    torch.testing.assert_close(ingot.load(tmp_path)(tokens), peer(tokens).logits, rtol=0, atol=2e-5)


def test_half_precision_weights_become_float32_exactly_unless_asked(tmp_path: Path) -> None:
    peer = peer_model().bfloat16()
    peer.save_pretrained(tmp_path / "model")
    model = ingot.load(tmp_path / "model")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.embedding.weight, peer.model.embed_tokens.weight.float())
    half = ingot.load(tmp_path / "model", dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert torch.equal(half.embedding.weight, peer.model.embed_tokens.weight)
    export_model(model, tmp_path / "again", dtype=torch.bfloat16)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["dtype"] == "bfloat16"
    theirs, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "again"))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(tensor, ours[name]) for name, tensor in theirs.items())


def test_windows_before_layer_types(tmp_path: Path) -> None:
    """Qwen 2 configurations once said only from which layer on the window holds."""
    torch.manual_seed(0)
    peer = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            initializer_range=0.3,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=2,
            attn_implementation="eager",
        )
    ).float()
    peer.save_pretrained(tmp_path)
    source = json.loads((tmp_path / "config.json").read_text())
    del source["layer_types"]
    (tmp_path / "config.json").write_text(json.dumps(source))
    model = ingot.load(tmp_path)
    mixers = [model.config.block(layer).mixer for layer in range(3)]
    assert [mixer.window for mixer in mixers if isinstance(mixer, AttentionConfig)] == [None, None, 4]
    tokens = random_tokens(2, 15)
    torch.testing.assert_close(model(tokens), peer(tokens).logits, rtol=0, atol=2e-5)


def test_a_tied_head_that_is_stored_all_the_same(tmp_path: Path) -> None:
    peer = peer_model(tie_word_embeddings=True)
    peer.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "lm_head.weight": peer.lm_head.weight.clone()}, tmp_path / "model.safetensors")
    model = ingot.load(tmp_path)
    assert model.config.tied_embeddings
    assert torch.equal(model.head_weight_VD, peer.lm_head.weight)


def with_tokenizer(part: AttentionConfig, tokenizer: Tokenizer) -> Transformer:
    model = random_model(config(part, vocabulary_size=tokenizer.vocabulary_size, context=512))
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("part", [attention(), NORMED], ids=["llama", "qwen3"])
def test_greedy_generation_is_the_same(part: AttentionConfig, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = with_tokenizer(part, tokenizer)
    export_model(model, tmp_path / "model")
    peer = load_peer(tmp_path / "model")
    ends = tuple(peer.generation_config.eos_token_id)
    assert ends == (tokenizer.special["<|im_end|>"], tokenizer.end_of_text)
    prompts = [tokenizer.encode(text) for text in ("the sum", "numbers of 12", "x")]
    completions = Engine(model, slots=4, length=64).complete(
        prompts, [Sampling(max_new_tokens=24, temperature=0.0, stop_tokens=ends)] * len(prompts)
    )
    for prompt, completion in zip(prompts, completions, strict=True):
        generated = peer.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)
        assert generated[0, len(prompt) :].tolist() == completion.tokens


def test_the_tokenizer_and_chat_template_come_along(tokenizer: Tokenizer, tmp_path: Path) -> None:
    export_model(with_tokenizer(attention(), tokenizer), tmp_path / "model")
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "The sum of 12 numbers,\n\n  indented — Straße 東京"
    assert peer.encode(text) == tokenizer.encode(text)
    assert peer.decode(peer.encode(text)) == text
    assert (peer.eos_token, peer.pad_token, peer.model_max_length) == ("<|im_end|>", "<|pad|>", 512)
    chat, tools = ChatFormat(tokenizer), [{"name": "times", "parameters": {"type": "object"}}]
    messages = [
        Message("system", "Be brief."),
        Message("user", "What is 12*34?"),
        Message("assistant", "", thinking="call it", tool_calls=[ToolCall("times", {"a": 12, "b": 34})]),
        Message("tool", "408"),
        Message("assistant", "It is 408.", thinking="done"),
    ]
    for thinking in (True, False):
        turns = messages if thinking else [message.without_thinking() for message in messages]
        tokens, mask = chat.conversation(turns, tools, thinking=thinking)
        rendered = peer.apply_chat_template(
            [message.to_dict() for message in turns],
            tools=tools,
            enable_thinking=thinking,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        assert (rendered["input_ids"], rendered["assistant_masks"]) == (tokens, mask)
    again = ingot.load(tmp_path / "model").tokenizer
    assert again is not None
    assert (again.chat_template, again.special) == (tokenizer.chat_template, tokenizer.special)
    assert again.encode(text) == tokenizer.encode(text)


def test_a_folder_saved_again_by_transformers_keeps_the_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    export_model(with_tokenizer(attention(), tokenizer), tmp_path / "model")
    load_peer(tmp_path / "model").save_pretrained(tmp_path / "again")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "again")
    again = ingot.load(tmp_path / "again").tokenizer
    assert again is not None
    assert (again.chat_template, again.encode("sum 12")) == (tokenizer.chat_template, tokenizer.encode("sum 12"))
