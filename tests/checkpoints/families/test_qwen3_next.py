"""Qwen3-Next's extra step of prediction, which released folders hold under `mtp.` and transformers leaves unread.

The reference is put together from transformers' own parts: its norm, its decoder layer with full attention, its head.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3NextConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextDecoderLayer, Qwen3NextRMSNorm

import ingot
from ingot.checkpoints.convert import export_model, import_model
from ingot.model.config import MultiTokenConfig
from tests.checkpoints.families.harness import reference, relative
from tests.checkpoints.families.test_hybrid import NEXT, TINY

ROWS, LENGTH = 2, 19


class Ahead(nn.Module):
    """norm(layer(fc([norm(embedding of the next token); norm(state)])))."""

    def __init__(self, config: Qwen3NextConfig) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding = Qwen3NextRMSNorm(width, eps=epsilon)
        self.pre_fc_norm_hidden = Qwen3NextRMSNorm(width, eps=epsilon)
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layers = nn.ModuleList([Qwen3NextDecoderLayer(config, config.num_hidden_layers - 1)])
        self.norm = Qwen3NextRMSNorm(width, eps=epsilon)

    def logits(self, model: PreTrainedModel, tokens: Tensor) -> Tensor:
        """At position t: the prediction of token t + 2, from the state of t and the token t + 1."""
        states = model.model(tokens, use_cache=False).last_hidden_state[:, :-1]
        known = model.model.embed_tokens(tokens[:, 1:])
        x = self.fc(torch.cat((self.pre_fc_norm_embedding(known), self.pre_fc_norm_hidden(states)), dim=-1))
        places = torch.arange(x.shape[1])[None]
        mask = create_causal_mask(
            config=model.config, inputs_embeds=x, attention_mask=None, past_key_values=None, position_ids=places
        )
        x = self.layers[0](x, position_embeddings=model.model.rotary_emb(x, places), attention_mask=mask)
        return model.lm_head(self.norm(x))


@pytest.fixture(scope="module")
def peer() -> PreTrainedModel:
    """A random model with the module attached, so that it is saved along."""
    model = reference(Qwen3NextConfig(**(TINY | NEXT)))
    assert model.config.layer_types[-1] == "full_attention"
    model.mtp = Ahead(model.config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, parameter in sorted(model.mtp.named_parameters()):
            parameter.normal_(0.0, 0.15, generator=generator)
    return model.eval()


@pytest.fixture(scope="module")
def folder(peer: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3_next") / "theirs"
    peer.save_pretrained(path)
    names = load_file(path / "model.safetensors").keys()
    assert {"mtp.fc.weight", "mtp.layers.0.mlp.experts.4.down_proj.weight", "mtp.norm.weight"} <= names
    return path


def test_the_extra_step_is_that_of_the_parts_of_transformers(peer: PreTrainedModel, folder: Path) -> None:
    model = ingot.load(folder).float()
    assert model.config.multi_token == MultiTokenConfig(steps=1, block=model.config.layer_names[-1])
    assert model.multi_token is not None
    tokens = torch.randint(0, TINY["vocab_size"], (ROWS, LENGTH), generator=torch.Generator().manual_seed(6))
    positions = torch.arange(LENGTH).expand_as(tokens)
    ((states, valid),) = model.multi_token(model.hidden(tokens), tokens, positions, None, model.embed)
    assert valid.sum() == ROWS * (LENGTH - 1)
    ours, theirs = model.head(states)[:, :-1], peer.mtp.logits(peer, tokens)
    assert relative(ours, theirs) < 2e-5
    direction = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(7))
    (ours * direction).sum().backward()
    (theirs * direction).sum().backward()
    pairs = {
        "multi_token.parts.0.input.weight": peer.mtp.fc.weight,
        "multi_token.parts.0.state_norm.gain": peer.mtp.pre_fc_norm_hidden.weight,
        "multi_token.parts.0.block.mixer.output.weight": peer.mtp.layers[0].self_attn.o_proj.weight,
        "embedding.weight": peer.model.embed_tokens.weight,
    }
    for name, parameter in pairs.items():
        found = model.get_parameter(name).grad
        assert found is not None
        assert relative(found, parameter.grad) < 2e-4, name


def test_the_module_goes_through_a_checkpoint_and_out_again(folder: Path, tmp_path: Path) -> None:
    import_model(folder, tmp_path / "checkpoint")
    export_model(tmp_path / "checkpoint", tmp_path / "back")
    theirs, ours = load_file(folder / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    assert ingot.load(tmp_path / "back").config == ingot.load(folder).config
    _, info = AutoModelForCausalLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info


def test_a_folder_without_the_module_has_no_extra_step(tmp_path: Path) -> None:
    reference(Qwen3NextConfig(**(TINY | NEXT))).save_pretrained(tmp_path / "plain")
    assert ingot.load(tmp_path / "plain").config.multi_token is None
