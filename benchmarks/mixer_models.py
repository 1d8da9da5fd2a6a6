"""Training speed of models of about 1B with linear and sparse mixers, beside a dense one of the same width: our trainer.

    python benchmarks/mixers.py --models [dense,qwen3-next,kimi-linear,nemotron-h,deepseek-v3,deepseek-v3.2,warmup]
        [--lengths 4,32] [--steps 12]

The mixers and layer patterns are those of Qwen3-Next, Kimi Linear, Nemotron-H and DeepSeek-V3.2, with dense feed-forwards; width
and vocabulary are those of the 1.24B of benchmarks/train.py, so that the mixers make the difference. Tokens are random.
DeepSeek-V3 is V3.2 without sparse attention: of its 128 heads 32, as the width is smaller, and of the indexer's 64 16; 2,048
keys are kept, and the indexer's loss is on. `warmup` is V3.2's dense warm-up: nothing but the indexers trains; MFU counts the
gradients of all weights, so there it means nothing.
"""

from __future__ import annotations

from typing import Any

from benchmarks.mixer_cases import reported
from ingot.model.config import ModelConfig

TRAINED = {"warmup": ("*.indexer.*",)}


def shape_of(name: str, context: int) -> ModelConfig:
    """About 1B with a published model's mixers; width, vocabulary and feed-forwards as the dense 1.24B of benchmarks/train.py."""
    from benchmarks.train import llama

    if name == "dense":
        return llama(2048, 16, 32, 8, 8192, 128_256, context)
    common = {"vocabulary_size": 128_256, "width": 2048, "context": context, "tied_embeddings": True}
    if name == "qwen3-next":
        linear = {"kind": "gated_delta", "key_heads": 16, "value_heads": 32, "key_width": 128, "value_width": 128}
        full = {
            "heads": 16,
            "key_value_heads": 2,
            "head_width": 256,
            "rope": {"base": 10_000_000.0, "share": 0.25},
            "query_key_norm": "head",
            "gate": {"place": "output", "form": "elementwise", "activation": "sigmoid"},
        }
        blocks = {"linear": {"mixer": linear, "feed_forward": {"width": 5504}}}
        blocks["full"] = {"mixer": full, "feed_forward": {"width": 5504}}
        return ModelConfig.model_validate({**common, "blocks": blocks, "layers": "(linear*3 full)*4"})
    if name == "kimi-linear":
        latent = {
            "query_latent": None,
            "key_value_latent": 512,
            "content_width": 128,
            "rope_width": 64,
            "value_width": 128,
        }
        blocks = {"kda": {"mixer": {"kind": "kda", "heads": 16, "head_width": 128}, "feed_forward": {"width": 7680}}}
        mixer = {"kind": "mla", "heads": 16, "rope": None, **latent}
        blocks["mla"] = {"mixer": mixer, "feed_forward": {"width": 7680}}
        return ModelConfig.model_validate({**common, "blocks": blocks, "layers": "(kda*3 mla)*4"})
    if name in ("deepseek-v3", "deepseek-v3.2", "warmup"):
        stage = "dense_warmup" if name == "warmup" else "sparse"
        sparse = {"heads": 16, "head_width": 128, "keep": 2048, "pairing": "halves", "stage": stage}
        latent_attention: dict[str, Any] = {
            "kind": "mla",
            "heads": 32,
            "query_latent": 1536,
            "key_value_latent": 512,
            "content_width": 128,
            "rope_width": 64,
            "value_width": 128,
            "sparse": None if name == "deepseek-v3" else sparse,
        }
        layer = {"mixer": latent_attention, "feed_forward": {"width": 5504}}
        return ModelConfig.model_validate({**common, "blocks": {"mla": layer}, "layers": "mla*16"})
    if name == "nemotron-h":
        mamba = {"kind": "mamba2", "heads": 64, "head_width": 64, "state": 128, "groups": 8, "norm": "gate_first"}
        blocks = {
            "mamba": {"mixer": mamba},
            "attention": {"mixer": {"heads": 16, "key_value_heads": 4, "head_width": 128, "rope": None}},
            "ffn": {"feed_forward": {"width": 10_752, "gated": False, "activation": "relu_squared"}},
        }
        layers = "(mamba ffn)*3 mamba attention ffn (mamba ffn)*4 mamba attention ffn (mamba ffn)*2"
        return ModelConfig.model_validate({**common, "blocks": blocks, "layers": layers})
    raise ValueError(f"no shape {name}")


def train_models(names: list[str], lengths: list[int], steps: int) -> list[dict[str, Any]]:
    """Tokens per second of our trainer at 32,768 tokens a step."""
    from benchmarks.train import train_ours
    from ingot.model.count import count

    found = []
    for thousands in lengths:
        length = thousands * 1024
        rows = max(32_768 // length, 1)
        for name in names:
            with reported(f"{name} {thousands}k"):
                config = shape_of(name, length)
                size = count(config).total
                ours = train_ours(config, rows, length, rows, steps, train_only=TRAINED.get(name, ()))
                row = {"model": name, "parameters": size, "thousands": thousands, **ours}
                found.append(row)
                print(
                    f"{name:12} {size / 1e9:.2f}B {rows} x {thousands}k  {ours['tokens_per_second']:9.0f} tokens/s  "
                    f"MFU {ours['mfu']:.3f}  {ours['gib']:.1f} GiB  loss {ours['first_loss']:.3f} {ours['loss']:.3f}",
                    flush=True,
                )
    return found
