"""The configuration of a model: named kinds of layers, their order, and everything around them.

A model is a stack of layers; each is one of the named `blocks`, in the order that `layers` spells out:

    blocks: { local: {…}, global: {…} }
    layers: "(local*5 global)*4 local*2"

A block names its mixer, its feed-forward (either may be missing) and where its norms sit. A part's options are declared in
the part's own file (mixers/, feed_forward/, positions/). No option is a family's name: every system of the
presets is a combination of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from ingot.model.feed_forward.config import AnyFeedForward
from ingot.model.layers import expand_layers
from ingot.model.mixers.config import AnyMixer
from ingot.model.norm import NormConfig
from ingot.model.positions.scaling import ScalingConfig
from ingot.model.presets.data import started, tuples
from ingot.workspace.config import Config
from ingot.workspace.errors import IngotError


class BlockConfig(Config):
    """One layer: a mixer, then a feed-forward, each wrapped by the residual rule:

        pre            x + f(norm(x))
        post           x + norm(f(x))
        sandwich       x + post_norm(f(norm(x)))
        norm_residual  h = norm(x); α·h + β·f(h)

    Either part may be missing.
    """

    mixer: AnyMixer | None = Field(None, description="the token mixer; null for none")
    feed_forward: AnyFeedForward | None = Field(None, description="the feed-forward; null for none")
    residual: Literal["pre", "post", "sandwich", "norm_residual"] = Field("pre", description="where the norms sit")
    mixer_scales: tuple[float, float] = Field((1.0, 1.0), description="α and β of norm_residual around the mixer")
    feed_forward_scales: tuple[float, float] = Field(
        (1.0, 1.0), description="α and β of norm_residual around the feed-forward"
    )

    @model_validator(mode="after")
    def _does_something(self) -> BlockConfig:
        if self.mixer is None and self.feed_forward is None:
            raise ValueError("a block needs a mixer, a feed_forward or both")
        if self.residual != "norm_residual" and (self.mixer_scales, self.feed_forward_scales) != ((1, 1), (1, 1)):
            raise ValueError("mixer_scales and feed_forward_scales belong to the residual rule norm_residual")
        return self


class MultiTokenConfig(Config):
    """Multi-token prediction (DeepSeek-V3, arXiv 2412.19437): module k reads token t + k and predicts token t + k + 1."""

    steps: int = Field(1, gt=0, description="how many tokens further the model predicts")
    block: str = Field(description="the name of the block that each module uses")
    shared: bool = Field(False, description="one module applied at every step (GLM-5), instead of one per step")
    weight: float = Field(0.3, ge=0, description="λ: the loss of all steps together counts λ times their mean")


class InitialConfig(Config):
    """Initial weights. Gains start at 1 (0 if zero-centred), biases at 0, recurrent parts have rules of their own."""

    distribution: Literal["normal", "truncated", "xavier"] = Field(
        "normal", description="normal, normal cut at 3 std, or normal with std sqrt(2 / (fan_in + fan_out))"
    )
    std: float | None = Field(0.02, gt=0, description="standard deviation; null: scale / sqrt(width)")
    scale: float = Field(1.0, gt=0, description="numerator of std: null (Trinity: 0.5)")
    depth_scaled: bool = Field(True, description="divide the std of output projections by sqrt(2·layers)")
    depth_scaled_post_norm: bool = Field(False, description="post-norm gains start at 1/sqrt(layers) (Trinity)")
    base_width: int | None = Field(
        None, gt=0, description="muP (arXiv 2203.03466): std and learning rates are those of a model of this width"
    )


class QuantisationConfig(Config):
    """Quantisation-aware training: weights are rounded to integers in the forward pass, gradients pass straight through."""

    bits: Literal[4, 8] = Field(description="bits of a weight")
    group: int | None = Field(32, gt=0, description="weights that share a scale along the input; null: a whole row")
    parts: Literal["experts", "linear"] = Field(
        "linear", description="routed experts only (Kimi K2 Thinking), or all linear layers of the blocks"
    )


class ModelConfig(Config):
    """A decoder-only language model. The key `preset` names a published one to start from; other keys are laid over it."""

    vocabulary_size: int | None = Field(None, gt=0, description="rows of the embedding; null: taken from the tokenizer")
    width: int = Field(gt=0, description="width of the residual stream")
    blocks: Mapping[str, BlockConfig] = Field(min_length=1, description="the kinds of layer, by name")
    layers: str = Field(description='which block each layer is: names, repeats and groups, as in "dense*3 (a*3 b)*12"')
    context: int = Field(
        2048, gt=0, description="longest sequence that the model was trained on: in a new model its sequence_length"
    )
    norm: NormConfig = Field(NormConfig(), description="the norms of the residual stream, of queries and of keys")
    tied_embeddings: bool = Field(True, description="the head uses the embedding matrix")
    embedding_scale: float = Field(1.0, description="factor on the embedding's output (Gemma: sqrt(width))")
    embedding_scale_rounded: bool = Field(False, description="round that factor to the dtype of the weights (Gemma)")
    logit_scale: float = Field(1.0, description="factor on the logits (Falcon-H1; muP)")
    logit_softcap: float | None = Field(None, gt=0, description="c in c·tanh(logit/c) (Gemma 2)")
    multi_token: MultiTokenConfig | None = Field(None, description="multi-token prediction modules")
    heads: tuple[str, ...] = Field(
        (), description="further heads, by name: one linear row on the last hidden state, a number per token (reward)"
    )
    initial: InitialConfig = Field(InitialConfig(), description="initial weights")
    quantisation: QuantisationConfig | None = Field(None, description="quantisation-aware training; null for none")
    export_as: str | None = Field(
        None, description="Hugging Face model type to export as; null: the first one that can express the model"
    )

    @model_validator(mode="before")
    @classmethod
    def _start_from_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        try:
            merged = tuples(started(data))
        except IngotError as error:  # reported among the recipe's problems, with the key it is about
            raise ValueError(f"{error.problem}; {error.fix}") from None
        if "preset" in data and _is_whole({key: data[key] for key in data if key != "preset"}, merged):
            raise ValueError(
                f"preset {data['preset']!r} is hidden by width, blocks and layers, which spell out a whole model; "
                "remove preset, or remove width, blocks and layers (they may stand in the recipe that this one extends)"
            )
        return merged

    @model_validator(mode="after")
    def _layers_exist(self) -> ModelConfig:
        unknown = sorted(set(self.layer_names) - set(self.blocks))
        if unknown:
            raise ValueError(f"layers names {', '.join(unknown)}; the blocks are {', '.join(self.blocks)}")
        if self.multi_token is not None and self.multi_token.block not in self.blocks:
            raise ValueError(f"multi_token.block {self.multi_token.block!r} is none of {', '.join(self.blocks)}")
        return self

    @cached_property
    def layer_names(self) -> tuple[str, ...]:
        """The name of every layer's block."""
        return expand_layers(self.layers)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.layer_names)

    def block(self, layer: int) -> BlockConfig:
        """The configuration of layer number `layer`."""
        return self.blocks[self.layer_names[layer]]

    def rotates(self, *, whole: bool = False) -> bool:
        """Whether any layer rotates its positions; with `whole`, one that sees the whole text."""
        blocks = [self.block(layer) for layer in range(self.depth)]
        blocks += [] if self.multi_token is None else [self.blocks[self.multi_token.block]]
        mixers = [
            mixer for block in {id(each): each for each in blocks}.values() for mixer in _rotating(block.model_dump())
        ]
        return any(_sees_all(mixer) or not whole for mixer in mixers)

    def with_rope_base(self, base: float) -> ModelConfig:
        """The same model with another θ in every layer that rotates (adjusted base frequency, arXiv 2309.16039)."""
        return self._with_mixers(lambda mixer: {"rope": {**mixer["rope"], "base": base}})

    def with_rope_scaling(self, scaling: ScalingConfig | None, context: int) -> ModelConfig:
        """The same model with its rotation stretched to `context`, in the layers that see the whole text (OLMo 3)."""
        stretched = None if scaling is None else scaling.model_dump()
        changed = self._with_mixers(
            lambda mixer: {"rope": {**mixer["rope"], "scaling": stretched}} if _sees_all(mixer) else {}
        )
        return changed.model_copy(update={"context": context})

    def with_dual_chunk(self, chunk: int, window: int, context: int) -> ModelConfig:
        """The same model reading texts of `context` tokens by dual chunk attention, where its attention rotates."""
        setting = {"chunk": chunk, "window": window}
        changed = self._with_mixers(
            lambda mixer: {"dual_chunk": setting} if "dual_chunk" in mixer and _sees_all(mixer) else {}
        )
        return changed.model_copy(update={"context": context})

    def _with_mixers(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> ModelConfig:
        """The same model with other fields in every mixer that rotates, also inside a parallel one."""
        return ModelConfig.model_validate(_change_mixers(self.model_dump(), change))


def _is_whole(own: Mapping[str, Any], merged: Mapping[str, Any]) -> bool:
    """Whether these keys spell out a whole model, so that nothing of a preset would be used."""
    try:
        model = ModelConfig.model_validate(tuples(own))
    except ValidationError:
        return False
    parts = [(block, merged["blocks"][name]) for name, block in model.blocks.items() if name in model.layer_names]
    return all(
        (block.mixer is None, block.feed_forward is None)
        == (both.get("mixer") is None, both.get("feed_forward") is None)
        for block, both in parts
    )


def _change_mixers(value: Any, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    if not isinstance(value, Mapping):
        return value
    changed = {key: _change_mixers(inner, change) for key, inner in value.items()}
    return {**changed, **change(changed)} if _is_rotating(value) else changed


def _rotating(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield from [value] if _is_rotating(value) else []
        for inner in value.values():
            yield from _rotating(inner)


def _is_rotating(value: Mapping[str, Any]) -> bool:
    return "base" in (value.get("rope") or {})  # a mixer's; a block may be called `rope` too (SmolLM3)


def _sees_all(mixer: Mapping[str, Any]) -> bool:
    return mixer.get("window") is None and mixer.get("chunk") is None
