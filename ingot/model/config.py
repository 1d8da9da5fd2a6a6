"""What a model is made of: data, not code.

A model is a stack of `depth` blocks that cycle through the list `blocks`, so that "every fourth layer without positions"
is a list of four. Each block names its mixer, its feed-forward and where its norms sit. Parameter and FLOP counts are
plain arithmetic on these numbers, so that a plan needs no torch; a test compares them with the built module.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ingot.workspace.config import Config


class RopeConfig(Config):
    """Rotary positions (Su et al., arXiv 2104.09864), half-split pairing."""

    base: float = Field(10_000.0, gt=1, description="θ: the longest wavelength is about 2π·θ positions")


class AttentionConfig(Config):
    """Causal softmax attention with grouped keys and values (Ainslie et al., arXiv 2305.13245)."""

    heads: int = Field(gt=0, description="query heads")
    key_value_heads: int = Field(
        gt=0, description="key and value heads; each serves heads / key_value_heads query heads"
    )
    head_width: int = Field(gt=0, description="width of one head")
    rope: RopeConfig | None = Field(
        RopeConfig(), description="rotary positions; null for a layer without positions (NoPE)"
    )
    query_key_norm: bool = Field(False, description="RMS norm on each head's query and key before rotation")
    query_key_value_bias: bool = Field(False, description="biases on the query, key and value projections")
    window: int | None = Field(None, gt=0, description="keys a query may see, itself included; null for all")

    @model_validator(mode="after")
    def _heads_divide(self) -> AttentionConfig:
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of key_value_heads ({self.key_value_heads})")
        if self.rope is not None and self.head_width % 2:
            raise ValueError(f"head_width ({self.head_width}) must be even for rotary positions")
        return self


class FeedForwardConfig(Config):
    """Gated feed-forward: down(act(gate x) ⊙ up x) (Shazeer, arXiv 2002.05202)."""

    width: int = Field(gt=0, description="inner width")
    activation: Literal["silu", "gelu_tanh"] = Field("silu", description="activation of the gate")


class BlockConfig(Config):
    """One layer: x + mixer(norm(x)), then x + feed_forward(norm(x))."""

    attention: AttentionConfig = Field(description="the token mixer")
    feed_forward: FeedForwardConfig = Field(description="the channel mixer")


class ModelConfig(Config):
    """A decoder-only language model."""

    vocabulary_size: int | None = Field(None, gt=0, description="rows of the embedding; null: taken from the tokenizer")
    width: int = Field(gt=0, description="width of the residual stream")
    depth: int = Field(gt=0, description="number of layers")
    blocks: tuple[BlockConfig, ...] = Field(min_length=1, description="layer i is blocks[i mod len(blocks)]")
    context: int = Field(2048, gt=0, description="longest sequence that the model was trained on")
    norm_epsilon: float = Field(1e-5, gt=0, description="ε of every RMS norm")
    tied_embeddings: bool = Field(True, description="the head uses the embedding matrix")
    initial_std: float = Field(0.02, gt=0, description="standard deviation of the initial weights")
    depth_scaled_init: bool = Field(True, description="divide the std of output projections by sqrt(2·depth)")

    def block(self, layer: int) -> BlockConfig:
        """The configuration of layer number `layer`."""
        return self.blocks[layer % len(self.blocks)]

    def with_rope_base(self, base: float) -> ModelConfig:
        """The same model with another θ in every layer that rotates (adjusted base frequency, arXiv 2309.16039)."""
        data = self.model_dump()
        for block in data["blocks"]:
            if block["attention"]["rope"] is not None:
                block["attention"]["rope"]["base"] = base
        return ModelConfig.model_validate(data)

    def layer_parameters(self, layer: int) -> int:
        """Parameters of one layer."""
        attention, feed_forward = self.block(layer).attention, self.block(layer).feed_forward
        query, key = attention.heads * attention.head_width, attention.key_value_heads * attention.head_width
        count = self.width * (query + 2 * key) + query * self.width  # q, k, v and output projections
        count += (
            query + 2 * key
        ) * attention.query_key_value_bias + 2 * attention.head_width * attention.query_key_norm
        return count + 3 * self.width * feed_forward.width + 2 * self.width  # feed-forward and two norms

    def parameters(self) -> int:
        """All parameters, a tied embedding counted once."""
        if self.vocabulary_size is None:
            raise ValueError("vocabulary_size is not known yet: it comes from the tokenizer")
        embeddings = self.vocabulary_size * self.width * (1 if self.tied_embeddings else 2)
        return embeddings + sum(self.layer_parameters(layer) for layer in range(self.depth)) + self.width

    def training_flops_per_token(self, length: int) -> int:
        """Forward and backward: 6 per matrix parameter, plus attention scores and values over the keys in sight.

        A query sees length / 2 keys on average; with a window w of the length T it is w − w²/2T.
        """
        if self.vocabulary_size is None:
            raise ValueError("vocabulary_size is not known yet: it comes from the tokenizer")
        matrices = sum(self.layer_parameters(layer) - 2 * self.width for layer in range(self.depth))
        matrices += self.vocabulary_size * self.width
        attention = 0
        for layer in range(self.depth):
            part = self.block(layer).attention
            window = min(part.window or length, length)
            attention += 12 * part.heads * part.head_width * window * (2 * length - window) // (2 * length)
        return 6 * matrices + attention

    def cache_bytes_per_token(self, bytes_per_value: int = 2) -> int:
        """Bytes of keys and values that one token adds to the cache."""
        return sum(
            2 * self.block(layer).attention.key_value_heads * self.block(layer).attention.head_width * bytes_per_value
            for layer in range(self.depth)
        )
