"""Adapters beside PEFT: the same logits and gradients, its files read by us and ours by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor

from ingot.checkpoints.adapter import adapted
from ingot.checkpoints.checkpoint import load_model, open_model
from ingot.checkpoints.convert import export_model, import_model
from ingot.checkpoints.peft import modules_of, read_peft, write_peft
from ingot.model.lora import merged_state
from ingot.model.lora_config import LoraConfig
from ingot.model.transformer import Transformer
from ingot.train.lora import adapt
from ingot.train.saving.adapter import gather_adapter
from ingot.workspace.errors import ArtifactError, RecipeError
from tests.checkpoints.families.harness import TINY
from tests.model.tiny import random_tokens

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SHARED = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 12,
}
LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": 14, "qk_rope_head_dim": 6, "qk_nope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 20,
    "first_k_dense_replace": 1, "num_key_value_heads": 4, "num_attention_heads": 4,
}  # fmt: skip
PEERS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**TINY),
    "qwen3": lambda: transformers.Qwen3Config(**TINY, head_dim=8),
    "qwen2_moe": lambda: transformers.Qwen2MoeConfig(**TINY, **SHARED),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(**TINY | LATENT),
}


def base_model(kind: str, folder: Path) -> Any:
    """A random model of transformers, also written to `folder`."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(PEERS[kind]()).eval()
    model.save_pretrained(folder)
    return model


def adapted_model(folder: Path, **options: Any) -> Transformer:
    """Our model of the folder with adapters, of which no number is zero."""
    model = load_model(folder)
    adapt(model, None, LoraConfig.model_validate({"rank": 4, "alpha": 12, **options}), folder, seed=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if name.endswith(".lora_B"):
                parameter.normal_(0, 0.2, generator=generator)
    return model


def save_adapter(model: Transformer, folder: Path, base: Path) -> None:
    folder.mkdir()
    assert model.lora is not None
    write_peft(folder, gather_adapter(model), model.config, model.lora, str(base))


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("options", [{}, {"layers": ("q_proj", "v_proj", "down_proj"), "rank_stabilised": True}])
def test_peft_loads_it_with_equal_logits_and_gradients(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    base = base_model(kind, tmp_path / "base")
    if kind == "deepseek_v3":  # PEFT 0.21 takes every gate_proj and down_proj of this type for routed experts
        options = options | {"layers": ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")}
    ours = adapted_model(tmp_path / "base", **options)
    save_adapter(ours, tmp_path / "adapter", tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter", is_trainable=True).eval()
    tokens = random_tokens(2, 11)
    logits = ours(tokens)
    close(logits, theirs(tokens).logits)
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    (logits * weights).sum().backward()
    (theirs(tokens).logits * weights).sum().backward()
    gradients = {name: each.grad for name, each in theirs.named_parameters() if each.grad is not None}
    by_rows = {place: module for module, place in modules_of(ours.config).items()}
    compared = 0
    for name, layer in ours.named_modules():
        for part in getattr(layer, "low_ranks", ()):
            module = by_rows[f"{name}.weight", part.span]
            for letter in "AB":
                peer = gradients.pop(f"base_model.model.{module}.lora_{letter}.default.weight")
                own = getattr(part, f"lora_{letter}").grad
                torch.testing.assert_close(own, peer, rtol=0, atol=2e-5 * peer.abs().max().item())
                compared += 1
    assert compared and not gradients  # every adapter of theirs is one of ours
    assert all(each.grad is None for name, each in ours.named_parameters() if "lora" not in name)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen2_moe"])
def test_all_linear_is_the_peers(kind: str, tmp_path: Path) -> None:
    base = base_model(kind, tmp_path / "base")
    ours = adapted_model(tmp_path / "base")
    theirs = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    named = {name.split(".lora_A")[0] for name, _ in theirs.named_parameters() if ".lora_A." in name}
    by_rows = {place: module for module, place in modules_of(ours.config).items()}
    own = {
        f"base_model.model.{by_rows[f'{name}.weight', part.span]}"
        for name, layer in ours.named_modules()
        for part in getattr(layer, "low_ranks", ())
    }
    assert own == named


@pytest.mark.parametrize("kind", ["llama", "deepseek_v3"])
def test_their_adapter_is_read_and_merged(kind: str, tmp_path: Path) -> None:
    base = base_model(kind, tmp_path / "base")
    config = peft.LoraConfig(
        r=3, lora_alpha=7, target_modules=["o_proj", "kv_b_proj", "v_proj"], rank_pattern={"o_proj": 5},
        alpha_pattern={"o_proj": 2}, init_lora_weights=False, task_type="CAUSAL_LM",
    )  # fmt: skip
    theirs = peft.get_peft_model(base, config).eval()
    theirs.save_pretrained(str(tmp_path / "adapter"))
    stored = open_model(tmp_path / "base")
    merged = adapted(stored, read_peft(tmp_path / "adapter", stored.config)).load()
    tokens = random_tokens(2, 11)
    with torch.no_grad():
        close(merged(tokens), theirs(tokens).logits)
    import_model(tmp_path / "base", tmp_path / "imported", adapter=tmp_path / "adapter")
    export_model(tmp_path / "base", tmp_path / "exported", adapter=tmp_path / "adapter")
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    with torch.no_grad():
        close(load_model(tmp_path / "imported")(tokens), merged(tokens))
        close(exported(tokens).logits, merged(tokens))


@pytest.mark.parametrize("tied", [True, False])
def test_rows_of_new_tokens_reach_peft(tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, tie_word_embeddings=tied)).eval()
    base.save_pretrained(tmp_path / "base")
    ours = adapted_model(tmp_path / "base", train_rows=(5, 2))
    with torch.no_grad():
        ours.embedding.weight[[5, 2]] += 0.3
        if not tied:
            ours.output.weight[[5, 2]] -= 0.2
    save_adapter(ours, tmp_path / "adapter", tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokens = torch.tensor([[5, 1, 2, 5, 9, 2]])
    with torch.no_grad():
        close(ours(tokens), theirs(tokens).logits)
    stored = open_model(tmp_path / "base")
    again = adapted(stored, read_peft(tmp_path / "adapter", stored.config)).load()
    with torch.no_grad():
        close(again(tokens), ours(tokens))


def test_the_merged_state_is_a_plain_model(tmp_path: Path) -> None:
    base_model("deepseek_v3", tmp_path / "base")
    model = adapted_model(tmp_path / "base")
    plain = load_model(tmp_path / "base")
    plain.load_state_dict(merged_state(model))
    tokens = random_tokens(2, 9)
    close(plain(tokens), model(tokens))


def test_another_models_adapter_is_refused(tmp_path: Path) -> None:
    base_model("llama", tmp_path / "base")
    base_model("deepseek_v3", tmp_path / "other")
    save_adapter(adapted_model(tmp_path / "base"), tmp_path / "adapter", tmp_path / "base")
    with pytest.raises(ArtifactError, match="no place for"):
        read_peft(tmp_path / "adapter", open_model(tmp_path / "other").config)
    with pytest.raises(ArtifactError, match="no adapter here"):
        read_peft(tmp_path / "base", open_model(tmp_path / "base").config)
    with pytest.raises(ArtifactError, match="an adapter without the model that it adapts"):
        open_model(tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_config.json").write_text("[", encoding="utf-8")
    with pytest.raises(ArtifactError, match="not readable as the configuration of an adapter"):
        read_peft(tmp_path / "adapter", open_model(tmp_path / "base").config)


def test_a_layer_that_is_not_there_is_named(tmp_path: Path) -> None:
    base_model("llama", tmp_path / "base")
    with pytest.raises(RecipeError, match="qq_proj matches no linear layer"):
        adapted_model(tmp_path / "base", layers=("qq_proj",))
