"""The Hugging Face layout against `transformers` itself: logits, gradients, keys, generation, chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import ingot
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.config import AttentionConfig, ModelConfig, RopeConfig
from ingot.model.huggingface import export_huggingface, import_huggingface, layout
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.tokenizer import Tokenizer
from tests.model.tiny import VOCABULARY, attention, config, random_model, random_tokens

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

LLAMA = (
    config(),
    config(attention(heads=3, key_value_heads=3, head_width=6), tied_embeddings=False),
    config(attention(heads=6, key_value_heads=2, rope=RopeConfig(base=77.0)), norm_epsilon=1e-3),
    config(attention(heads=3, key_value_heads=1, head_width=10), depth=3, tied_embeddings=False),
)
QWEN3 = (
    config(attention(query_key_norm=True)),
    config(attention(heads=5, key_value_heads=5, head_width=4, query_key_norm=True), tied_embeddings=False),
    config(attention(heads=9, key_value_heads=3, query_key_norm=True, rope=RopeConfig(base=1e6)), norm_epsilon=1e-6),
    config(attention(query_key_norm=True), attention(query_key_norm=True, window=3), depth=4),
)
QWEN2 = (
    config(attention(query_key_value_bias=True), tied_embeddings=False),
    config(
        attention(heads=5, key_value_heads=1, query_key_value_bias=True, window=4),
        attention(heads=5, key_value_heads=1, query_key_value_bias=True),
    ),
)
SMOLLM3 = (
    config(attention(rope=RopeConfig(base=5e6)), attention(rope=None), depth=5),
    config(attention(heads=5, key_value_heads=5)),  # 24 is no multiple of 5, which the type llama refuses
    config(attention(window=3), attention(rope=None), tied_embeddings=False),
)
SHAPES = [
    pytest.param(name, shape, id=f"{name}-{number}")
    for name, shapes in {"llama": LLAMA, "qwen3": QWEN3, "qwen2": QWEN2, "smollm3": SMOLLM3}.items()
    for number, shape in enumerate(shapes)
]


def load_peer(folder: Path) -> Any:
    """The model as transformers loads it; every key must have been found and used."""
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    assert {name: keys for name, keys in found.items() if keys} == {}
    return model


@pytest.mark.parametrize(("model_type", "shape"), SHAPES)
def test_transformers_computes_the_same_logits_and_gradients(
    model_type: str, shape: ModelConfig, tmp_path: Path
) -> None:
    model = random_model(shape, scale=0.2)
    export_huggingface(model, tmp_path / "model")
    peer = load_peer(tmp_path / "model")
    assert peer.config.model_type == model_type
    tokens = random_tokens(2, 19)
    ours, theirs = model(tokens), peer(tokens).logits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(0)) / 19
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    parameters, places = dict(model.named_parameters()), layout(shape)
    named = dict(peer.named_parameters())  # a tied head is listed once, under the embedding's name
    assert named.keys() == places.keys()
    for name, parameter in named.items():
        gradient = parameters[places[name].parameter].grad
        assert gradient is not None
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient[places[name].rows], parameter.grad, rtol=0, atol=2e-5 * scale, msg=name)


@pytest.mark.parametrize(("model_type", "shape"), SHAPES)
def test_a_round_trip_returns_the_same_bits(model_type: str, shape: ModelConfig, tmp_path: Path) -> None:
    model = random_model(shape)
    export_huggingface(model, tmp_path / "model")
    again = ingot.load(tmp_path / "model")
    assert again.config == shape
    assert again.tokenizer is None
    state = model.state_dict()
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())
    on_disk = json.loads((tmp_path / "model" / "config.json").read_text())
    assert on_disk["model_type"] == model_type
    export_huggingface(again, tmp_path / "again")
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
    model = import_huggingface(tmp_path)
    tokens = random_tokens(2, 21)
    torch.testing.assert_close(model(tokens), peer(tokens).logits, rtol=0, atol=2e-5)
    assert model.config.tied_embeddings == tied


@pytest.mark.parametrize("spelling", ["rope_theta", "rope_scaling null", "rope_parameters"])
def test_old_and_new_spellings_of_the_rope_base(spelling: str, tmp_path: Path) -> None:
    peer_model().save_pretrained(tmp_path)
    source = json.loads((tmp_path / "config.json").read_text())
    del source["rope_parameters"]
    source |= {
        "rope_theta": {"rope_theta": 123.0},
        "rope_scaling null": {"rope_theta": 123.0, "rope_scaling": None},
        "rope_parameters": {"rope_parameters": {"rope_theta": 123.0, "rope_type": "default"}},
    }[spelling]
    (tmp_path / "config.json").write_text(json.dumps(source))
    rope = import_huggingface(tmp_path).config.block(0).attention.rope
    assert rope is not None and rope.base == 123.0


def test_half_precision_weights_become_float32_exactly(tmp_path: Path) -> None:
    peer = peer_model().bfloat16()
    peer.save_pretrained(tmp_path)
    model = import_huggingface(tmp_path)
    assert model.embedding.weight.dtype == torch.float32
    assert torch.equal(model.embedding.weight, peer.model.embed_tokens.weight.float())
    export_huggingface(model.bfloat16(), tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["dtype"] == "bfloat16"


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
    model = import_huggingface(tmp_path)
    assert [model.config.block(layer).attention.window for layer in range(3)] == [None, None, 4]
    tokens = random_tokens(2, 15)
    torch.testing.assert_close(model(tokens), peer(tokens).logits, rtol=0, atol=2e-5)


def with_tokenizer(part: AttentionConfig, tokenizer: Tokenizer) -> Transformer:
    model = random_model(config(part, vocabulary_size=tokenizer.vocabulary_size, context=512))
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("part", [attention(), attention(query_key_norm=True)], ids=["llama", "qwen3"])
def test_greedy_generation_is_the_same(part: AttentionConfig, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = with_tokenizer(part, tokenizer)
    export_huggingface(model, tmp_path / "model")
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
    export_huggingface(with_tokenizer(attention(), tokenizer), tmp_path / "model")
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
    again = import_huggingface(tmp_path / "model").tokenizer
    assert again is not None
    assert (again.chat_template, again.special) == (tokenizer.chat_template, tokenizer.special)
    assert again.encode(text) == tokenizer.encode(text)


def test_a_folder_saved_again_by_transformers_keeps_the_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    export_huggingface(with_tokenizer(attention(), tokenizer), tmp_path / "model")
    load_peer(tmp_path / "model").save_pretrained(tmp_path / "again")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "again")
    again = ingot.load(tmp_path / "again").tokenizer
    assert again is not None
    assert (again.chat_template, again.encode("sum 12")) == (tokenizer.chat_template, tokenizer.encode("sum 12"))


def test_a_foreign_tokenizer_is_left_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Without Ingot's special tokens there is no chat format, but the weights are as good."""
    export_huggingface(with_tokenizer(attention(), tokenizer), tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    value["added_tokens"] = [token for token in value["added_tokens"] if token["content"] != "<think>"]
    file.write_text(json.dumps(value), encoding="utf-8")
    assert import_huggingface(tmp_path / "model").tokenizer is None
