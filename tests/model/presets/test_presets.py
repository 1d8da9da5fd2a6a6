"""The preset files: complete, true to what was published, and miniatures with the same parts that can be computed."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError

from ingot.cli.show_model import comparisons
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.count import count
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mla import MlaConfig
from ingot.model.presets.data import entries, merged, names
from ingot.model.presets.preset import Preset, load_preset, preset, presets
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError
from tests.model.minis import covering

FULL = [one for one in presets() if not one.mini]
MINIS = [one for one in presets() if one.mini]
COVERING = covering({one.name: one.model for one in MINIS})
SYSTEMS = sorted({one.system for one in presets()})
CONTEXT = 256
SIZES = {
    *("width", "layers", "vocabulary_size", "context", "embedding_scale", "heads", "key_value_heads", "head_width"),
    *("window", "chunk", "keep", "floor", "base", "experts", "active", "groups", "kept_groups", "query_latent"),
    *(
        "key_value_latent",
        "content_width",
        "rope_width",
        "value_width",
        "key_heads",
        "value_heads",
        "key_width",
        "state",
    ),
    *("factor", "original_context", "short_factors", "long_factors", "scaling", "mixer_scales", "feed_forward_scales"),
    *("coefficient", "balancers", "initial", "scale"),
}
"""Keys in which a miniature may differ from its system; everything else is a switch and must be the same."""


def identity(one: Preset) -> str:
    return one.name


def test_counts_are_the_published_ones_or_the_reason_is_given() -> None:
    for one in FULL:
        assert one.published is not None
        rows = comparisons(count(one.model), one.published)
        off = [name for name, published, here, _ in rows if abs(here / published - 1) > 0.01]
        assert bool(one.published.reason) == bool(off), f"{one.name} off: {off}, reason: {one.published.reason!r}"


def test_every_expert_model_has_a_published_active_count() -> None:
    for one in FULL:
        assert one.published is not None
        assert (one.published.active is not None) == bool(count(one.model).mixtures), one.name


def test_every_block_is_used() -> None:
    for one in presets():
        further = {one.model.multi_token.block} if one.model.multi_token else set()
        assert set(one.model.blocks) == set(one.model.layer_names) | further, one.name


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_miniature_has_the_parts_and_switches_of_its_system(system: str) -> None:
    """Leaving sizes aside, every kind of layer of a miniature is one of the system's, and none is missing."""
    full = {_switches(block) for one in FULL if one.system == system for block in one.model.blocks.values()}
    small = {_switches(block) for one in MINIS if one.system == system for block in one.model.blocks.values()}
    assert small
    assert small <= full
    kinds = {kind.partition("|")[0] for kind in full}
    assert {kind.partition("|")[0] for kind in small} == kinds


def _switches(block: BlockConfig) -> str:
    """Kind of mixer and feed-forward, then all that is no size, as text."""
    kinds = [part.kind for part in (block.mixer, block.feed_forward) if part is not None]
    return f"{kinds}|{_without_sizes(block.model_dump(mode='json'))}"


def _without_sizes(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_sizes(inner) if key not in SIZES else inner is not None for key, inner in value.items()}
    return value


@pytest.mark.parametrize("one", MINIS, ids=identity)
def test_a_miniature_is_small_and_its_limits_matter(one: Preset) -> None:
    config = one.model
    assert config.vocabulary_size is None
    assert config.context == CONTEXT
    assert 5e5 < count(config).total < 5e6
    assert set(config.layer_names) == set(config.blocks)
    for block in config.blocks.values():
        mixer = block.mixer
        if isinstance(mixer, AttentionConfig):
            assert (mixer.window or 1) < CONTEXT
            assert (mixer.chunk or 1) < CONTEXT
        if isinstance(mixer, MlaConfig) and mixer.sparse:
            assert mixer.sparse.keep < CONTEXT
        if isinstance(block.feed_forward, MoeConfig):
            assert block.feed_forward.balancers


@pytest.mark.parametrize(
    "one",
    [one if one.name in COVERING else pytest.param(one, marks=pytest.mark.slow) for one in MINIS],
    ids=identity,
)
def test_a_miniature_starts_at_the_entropy_of_the_vocabulary(one: Preset) -> None:
    """A freshly initialised model knows nothing: its loss is ln(vocabulary), and a step down its gradient lowers it."""
    vocabulary = 320
    model = Transformer(one.model.model_copy(update={"vocabulary_size": vocabulary}))
    initialise(model, seed=0)
    tokens = torch.randint(vocabulary, (1, 97), generator=torch.Generator().manual_seed(0))

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens[:, :-1])[0], tokens[0, 1:])

    before = loss()
    assert before.item() == pytest.approx(
        math.log(vocabulary), abs=0.75
    )  # half a nat and more where tied logits have variance one
    before.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    length = torch.stack([gradient.norm() for gradient in gradients]).norm()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=0.05 / length.item())
        assert loss() < before


def test_a_recipe_starts_from_a_preset_and_lays_its_keys_over_it() -> None:
    changed = ModelConfig.model_validate(
        {"preset": "smollm3-3b-mini", "width": 96, "blocks": {"nope": {"feed_forward": {"width": 200}}}}
    )
    start = preset("smollm3-3b-mini")
    assert changed.width == 96
    assert changed.blocks["nope"].feed_forward == start.blocks["nope"].feed_forward.model_copy(update={"width": 200})  # type: ignore[union-attr]
    assert changed.blocks["nope"].mixer == start.blocks["nope"].mixer
    assert changed.blocks["rope"] == start.blocks["rope"]
    assert "preset" not in changed.model_dump()
    assert ModelConfig.model_validate_json(changed.model_dump_json(), strict=True) == changed


def test_a_preset_beside_a_whole_model_is_an_error_and_not_hidden() -> None:
    whole = preset("qwen3-8b-mini").model_dump()
    for given in (whole, {name: whole[name] for name in ("width", "blocks", "layers")}):
        with pytest.raises(ValidationError, match=r"'smollm3-3b-mini' is hidden by .*; remove preset, or remove width"):
            ModelConfig.model_validate({"preset": "smollm3-3b-mini", **given})
    start = preset("qwen3-8b-mini")  # parts of a model still lie over it
    parts = {"width": 96, "blocks": {"layer": {"feed_forward": {"width": 200}}}, "layers": "layer*3"}
    over = ModelConfig.model_validate({"preset": "qwen3-8b-mini", **parts})
    assert (over.width, over.depth, over.blocks["layer"].mixer) == (96, 3, start.blocks["layer"].mixer)


def test_a_part_of_another_kind_replaces_the_whole_part() -> None:
    mamba = {"kind": "mamba2", "heads": 4, "head_width": 32, "state": 16}
    changed = ModelConfig.model_validate({"preset": "qwen3-8b-mini", "blocks": {"layer": {"mixer": mamba}}})
    assert changed.blocks["layer"].mixer == BlockConfig.model_validate({"mixer": mamba}).mixer


def test_merging_keeps_what_it_is_given() -> None:
    base = {"a": {"b": 1, "c": [1, 2]}, "d": None}
    assert merged(base, {"a": {"c": [3]}, "d": {"e": 1}}) == {"a": {"b": 1, "c": [3]}, "d": {"e": 1}}
    assert merged(base, {"a": None}) == {"a": None, "d": None}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": None}


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(IngotError, match=r"no preset 'smollm3-8b'\n.*smollm3-3b"):
        preset("smollm3-8b")
    with pytest.raises(ValidationError, match="no preset 'kimi-k3'; did you mean kimi-k2"):
        ModelConfig.model_validate({"preset": "kimi-k3"})


def test_names_are_unique_and_need_no_torch() -> None:
    written = [
        name
        for one in {e.system: e.file for e in entries().values()}.values()
        for part in ("sizes", "minis")
        for name in one[part]
    ]
    assert sorted(written) == sorted(names())
    code = "import sys; from ingot.model.presets.data import names; names(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_size_says_what_differs_in_its_recipe() -> None:
    small, large = load_preset("olmo3-7b").recipe, load_preset("olmo3-32b").recipe
    assert (small.batch, large.batch) == ("512 × 8192 = 4.2M tokens", "8.4M tokens")
    assert small.optimizer == large.optimizer != ""
