"""Groups by pattern: the first match wins, its rates and decays count, and a pattern that matches nothing is named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ingot.model.initialise import mup_config
from ingot.model.transformer import Transformer
from ingot.optim.build import make_optimizer
from ingot.optim.config import AdamWConfig, MuonConfig
from ingot.workspace.errors import RecipeError
from tests.model.tiny import attention, config


def rules(model: Transformer, settings: AdamWConfig | MuonConfig) -> dict[str, dict[str, Any]]:
    """The group of every parameter, by name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = make_optimizer(model, settings).param_groups
    return {names[id(parameter)]: group for group in groups for parameter in group["params"]}


def muon(**changes: Any) -> MuonConfig:
    return MuonConfig.model_validate({"kind": "muon", "lr": 0.02, "weight_decay": 0.3, **changes})


def small(**changes: Any) -> Transformer:
    return Transformer(config(attention(query_key_value_bias=True, sinks=True), tied_embeddings=False, **changes))


def test_the_first_pattern_wins_and_the_rest_keeps_its_rule() -> None:
    groups = (
        {"match": "blocks.0.*.down.weight", "lr": 0.5},
        {"match": "*.down.weight", "weight_decay": 0.7},
        {"match": "embedding.*", "lr": 0.25, "weight_decay": 0.1},
    )
    found = rules(small(), AdamWConfig.model_validate({"lr": 0.01, "weight_decay": 0.3, "groups": groups}))
    chosen = {name: (group["peak_lr"], group["weight_decay"]) for name, group in found.items()}
    assert chosen["blocks.0.feed_forward.down.weight"] == (0.5, 0.3)
    assert chosen["blocks.1.feed_forward.down.weight"] == (0.01, 0.7)
    assert chosen["embedding.weight"] == (0.25, 0.1)
    assert chosen["blocks.0.mixer.output.weight"] == chosen["output.weight"] == (0.01, 0.3)
    assert chosen["norm.gain"] == chosen["blocks.0.mixer.sinks"] == (0.01, 0.0)
    assert chosen["blocks.1.mixer.query_key_value.bias"] == (0.01, 0.0)
    assert all(group["lr"] == group["peak_lr"] for group in found.values())


def test_a_pattern_without_parameters_is_named_with_its_neighbours() -> None:
    settings = AdamWConfig.model_validate({"groups": [{"match": "norm.*"}, {"match": "blocks.*.mixer.outptu.weight"}]})
    with pytest.raises(RecipeError, match=r"groups\[1\].*outptu.* matches no parameter") as raised:
        make_optimizer(small(), settings)
    assert "blocks.0.mixer.output.weight" in str(raised.value)


def test_muon_takes_the_matrices_of_the_blocks() -> None:
    found = rules(small(), muon(rest_lr=0.004))
    halves = {name: group["half"] for name, group in found.items()}
    matrices = {
        "mixer.query_key_value.weight",
        "mixer.output.weight",
        "feed_forward.gate_up.weight",
        "feed_forward.down.weight",
    }
    assert {name for name, half in halves.items() if half == "muon"} == {
        f"blocks.{layer}.{matrix}" for layer in (0, 1) for matrix in matrices
    }
    assert (found["output.weight"]["peak_lr"], found["output.weight"]["weight_decay"]) == (0.004, 0.3)
    assert (found["embedding.weight"]["peak_lr"], found["embedding.weight"]["weight_decay"]) == (0.004, 0.0)
    assert (found["blocks.0.mixer.output.weight"]["peak_lr"], found["norm.gain"]["peak_lr"]) == (0.02, 0.004)
    assert rules(small(), muon(head="muon"))["output.weight"]["half"] == "muon"
    assert rules(small(), muon())["norm.gain"]["peak_lr"] == 0.02


def test_groups_choose_the_half() -> None:
    chosen = rules(small(), muon(groups=[{"match": "*.gate_up.weight", "optimizer": "adamw", "lr": 0.1}]))
    assert chosen["blocks.0.feed_forward.gate_up.weight"]["half"] == "adamw"
    assert chosen["blocks.0.feed_forward.gate_up.weight"]["peak_lr"] == 0.1
    assert chosen["blocks.0.feed_forward.down.weight"]["half"] == "muon"
    with pytest.raises(RecipeError, match=r"blocks\.0\.mixer\.sinks is a vector"):
        make_optimizer(small(), muon(groups=[{"match": "*.sinks", "optimizer": "muon"}]))
    with pytest.raises(ValidationError, match="asks for Muon"):
        AdamWConfig.model_validate({"groups": [{"match": "*", "optimizer": "muon"}]})


def test_width_changes_the_rates_of_muon_as_its_scale_demands() -> None:
    """Four times the tuned width. The step's largest singular value, rate · scale, is what has to stay as it was."""
    wide = Transformer(mup_config(config(width=96, tied_embeddings=False), 24))
    name = "blocks.0.mixer.output.weight"
    spectral, rms = (rules(wide, muon(scale=scale)) for scale in ("spectral", "rms"))
    assert spectral[name]["peak_lr"] == 0.02
    assert rms[name]["peak_lr"] == pytest.approx(0.01)
    assert rms["embedding.weight"]["peak_lr"] == rms["output.weight"]["peak_lr"] == 0.02
    by_adamw = rules(wide, muon(groups=[{"match": name, "optimizer": "adamw"}]))
    assert by_adamw[name]["peak_lr"] == pytest.approx(0.005)


def test_options_that_do_nothing_to_a_model_are_refused() -> None:
    """As for a checkpoint that no recipe says the model of; a recipe is refused when it is read."""
    tied = Transformer(config(attention(), tied_embeddings=True))
    with pytest.raises(RecipeError, match=r"optimizer\.head: muon updates a head of its own"):
        make_optimizer(tied, muon(head="muon"))
    normed = Transformer(config(attention(query_key_norm="head")))
    with pytest.raises(RecipeError, match=r"optimizer\.qk_clip: there is nothing to clip"):
        make_optimizer(normed, AdamWConfig(qk_clip=100))
    make_optimizer(small(), muon(head="muon", split_heads=True, qk_clip=100))
