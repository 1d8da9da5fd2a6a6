"""Multi-token prediction against transformers' own modules, through a folder that Ingot wrote; and with packed documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, DeepseekV3Config, Glm4MoeConfig, PreTrainedModel
from transformers.modeling_layers import MtpModel

from ingot.checkpoints.families.table import read_config, write_config
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from tests.checkpoints.families.harness import GRADIENTS, LOGITS, TINY, imported, relative
from tests.checkpoints.whole import written_tensors

MOE = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "first_k_dense_replace": 1}
LATENT = {
    "num_key_value_heads": 6,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
PEERS = {
    "glm4_moe": Glm4MoeConfig(**TINY, **MOE, use_qk_norm=True, attention_bias=True, num_mtp_layers=2),
    "deepseek_v3": DeepseekV3Config(**(TINY | MOE | LATENT), n_group=2, topk_group=2, num_mtp_layers=2),
}

SAME = {
    "input.weight": "eh_proj.weight",
    "embedding_norm.gain": "enorm.weight",
    "state_norm.gain": "hnorm.weight",
    "norm.gain": "post_norm.weight",
    "block.mixer_norm.gain": "mtp_block.input_layernorm.weight",
    "block.mixer.output.weight": "mtp_block.self_attn.o_proj.weight",
    "block.feed_forward.experts.gate_up": "mtp_block.mlp.experts.gate_up_proj",
    "block.feed_forward.router.weight": "mtp_block.mlp.gate.weight",
}
"""Parameters of a module: ours, and those of transformers."""


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model in which nothing is special."""
    model = Transformer(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict().items()):
            tensor.normal_(1.0 if name.endswith("gain") else 0.0, 0.15, generator=generator)
    return model


def described(name: str, **changes: Any) -> ModelConfig:
    """Ingot's configuration of the peer; without tensors config.json is believed, and it says two modules."""
    values = json.loads(PEERS[name].to_json_string(use_diff=False)) | {"model_type": name} | changes
    return read_config(values, "config.json")[1]


def write(model: Transformer, folder: Path) -> None:
    family, values = write_config(model.config)
    tensors = written_tensors(family.layout(model.config), model.state_dict())
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")


def read_peer(folder: Path, depth: int, monkeypatch: pytest.MonkeyPatch) -> tuple[PreTrainedModel, MtpModel]:
    """The model and its modules in transformers, which recognises them by the depths of published models only."""
    patterns = [rf"model\.layers\.{depth + step}\..*" for step in range(2)]
    peer_class = AutoModelForCausalLM._model_mapping[
        type(PEERS[json.loads((folder / "config.json").read_text())["model_type"]])
    ]
    monkeypatch.setattr(peer_class, "_keys_to_ignore_on_load_unexpected", patterns)
    main, info = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", experts_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    return main.eval(), MtpModel.from_pretrained(main).eval()


def peer_steps(main: PreTrainedModel, modules: MtpModel, tokens: Tensor, layers: list[int]) -> list[Tensor]:
    """Logits of every step: entry t of step k predicts token t + k + 1, for t up to the last known token."""
    state = main.model(input_ids=tokens, use_cache=False).last_hidden_state
    results = []
    for step, layer in enumerate(layers, 1):
        known = tokens[:, step:]
        positions = torch.arange(step, tokens.shape[1])[None]
        state = modules.forward_layer(layer, state[:, : known.shape[1]], positions, None, input_ids=known)
        results.append(main.lm_head(state))
    return results


def our_steps(
    model: Transformer, tokens: Tensor, positions: Tensor, documents: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    assert model.multi_token is not None
    states = model.hidden(tokens, positions, documents)
    steps = model.multi_token(states, tokens, positions, documents, model.embed)
    return [(model.head(state), valid) for state, valid in steps]


def some_tokens(rows: int = 2, length: int = 13) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, TINY["vocab_size"], (rows, length), generator=torch.Generator().manual_seed(5))
    return tokens, torch.arange(length).expand_as(tokens)


@pytest.mark.parametrize("name", PEERS)
def test_steps_and_their_gradients_are_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(described(name))
    write(model, tmp_path)
    main, modules = read_peer(tmp_path, model.config.depth, monkeypatch)
    tokens, positions = some_tokens()
    theirs = peer_steps(main, modules, tokens, [0, 1])
    ours = our_steps(model, tokens, positions, None)
    assert len(ours) == len(theirs) == 2
    generator = torch.Generator().manual_seed(6)
    for step, ((found, valid), expected) in enumerate(zip(ours, theirs, strict=True), 1):
        assert valid.sum() == 2 * (13 - step)
        found = found[:, :-step]
        assert relative(found, expected) < LOGITS
        direction = torch.randn(expected.shape, generator=generator)
        (found * direction).sum().backward(retain_graph=True)
        (expected * direction).sum().backward(retain_graph=True)
    assert model.multi_token is not None
    for step in range(2):
        part, peer = model.multi_token.parts[step], modules.layers[step]
        for mine, other in SAME.items():
            ours_grad, theirs_grad = part.get_parameter(mine).grad, peer.get_parameter(other).grad
            assert ours_grad is not None and theirs_grad is not None
            assert relative(ours_grad, theirs_grad) < GRADIENTS, mine
    embedding, head = main.get_input_embeddings().weight.grad, main.lm_head.weight.grad
    assert embedding is not None and model.embedding.weight.grad is not None
    assert relative(model.embedding.weight.grad, embedding) < GRADIENTS
    assert head is not None and model.output.weight.grad is not None
    assert relative(model.output.weight.grad, head) < GRADIENTS


def test_one_module_may_serve_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = described("glm4_moe")
    assert config.multi_token is not None
    shared = config.multi_token.model_copy(update={"steps": 3, "shared": True})
    model = random_model(config.model_copy(update={"multi_token": shared}))
    write(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_nextn_predict_layers"] == 1
    main, modules = read_peer(tmp_path, model.config.depth, monkeypatch)
    tokens, positions = some_tokens()
    theirs = peer_steps(main, modules, tokens, [0, 0, 0])
    for step, ((found, _), expected) in enumerate(
        zip(our_steps(model, tokens, positions, None), theirs, strict=True), 1
    ):
        assert relative(found[:, :-step], expected) < LOGITS


@pytest.mark.parametrize("name", PEERS)
def test_modules_are_read_when_their_tensors_are_there(name: str, tmp_path: Path) -> None:
    model = random_model(described(name))
    write(model, tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    tensors = load_file(tmp_path / "model.safetensors")
    _, layout, again = imported(values, tensors)
    assert again.config == model.config and again.multi_token is not None
    state, before = again.state_dict(), model.state_dict()
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert set(tensors) == set(layout)

    depth = model.config.depth
    copies = [
        key for key in tensors if key.endswith(("embed_tokens.weight", "shared_head.head.weight")) and "layers" in key
    ]
    assert len(copies) == 4
    imported(values, {key: tensor for key, tensor in tensors.items() if key not in copies})  # they may be missing
    with pytest.raises(ArtifactError, match="should be a copy of embedding"):
        imported(values, tensors | {copies[0]: tensors[copies[0]] + 1})

    plain = {
        key: tensor
        for key, tensor in tensors.items()
        if f"layers.{depth}." not in key and f"layers.{depth + 1}." not in key
    }
    _, _, without = imported(values, plain)  # what transformers saves: the number, and no module
    assert without.config.multi_token is None
    _, written = write_config(without.config)
    assert written["num_nextn_predict_layers"] == 0
    with pytest.raises(ArtifactError, match=rf"not understood: .*layers\.{depth}\."):
        imported(values | {"num_nextn_predict_layers": 0}, tensors)


@pytest.mark.parametrize("name", PEERS)
def test_packed_documents_are_computed_as_each_alone(name: str) -> None:
    model = random_model(described(name))
    sizes = [[5, 1, 2, 4], [7, 5]]  # documents that end where a step still looks ahead
    tokens, _ = some_tokens(2, 13)  # the last token of each row is padding
    documents = torch.full_like(tokens, -1)
    positions = torch.zeros_like(tokens)
    for row, lengths in enumerate(sizes):
        start = 0
        for number, size in enumerate(lengths):
            documents[row, start : start + size] = number
            positions[row, start : start + size] = torch.arange(size)
            start += size
    with torch.no_grad():
        packed = our_steps(model, tokens, positions, documents)
        for row, lengths in enumerate(sizes):
            start = 0
            for size in lengths:
                one = tokens[row : row + 1, start : start + size]
                alone = our_steps(model, one, torch.arange(size)[None], None)
                for step, ((logits, valid), (expected, known)) in enumerate(zip(packed, alone, strict=True), 1):
                    place = slice(start, start + size)
                    assert torch.equal(valid[row, place], known[0]) and int(known.sum()) == max(size - step, 0)
                    if known.any():
                        assert relative(logits[row, place][known[0]], expected[known]) < LOGITS
                start += size
            assert not any(valid[row, start:].any() for _, valid in packed)


def test_nothing_of_the_next_document_is_seen() -> None:
    model = random_model(described("glm4_moe"))
    tokens, _ = some_tokens(1, 12)
    documents = torch.tensor([[0] * 7 + [1] * 5])
    positions = torch.cat((torch.arange(7), torch.arange(5)))[None]
    other = tokens.clone()
    other[:, 7:] = (other[:, 7:] + 1) % TINY["vocab_size"]
    with torch.no_grad():
        for (first, valid), (second, _) in zip(
            our_steps(model, tokens, positions, documents), our_steps(model, other, positions, documents), strict=True
        ):
            before = valid & (documents == 0)
            assert relative(first[before], second[before]) < 1e-6
            after = valid & (documents == 1)
            assert relative(first[after], second[after]) > 1e-2
