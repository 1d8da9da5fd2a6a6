"""Models that also read images: their language model is one of the other families, inside `text_config`.

Ingot takes the language model and leaves the image encoder out, and says so in a note. Such a model is
exported as the text family.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.checkpoints.families import deepseek, gemma, llama4
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys
from ingot.model.config import ModelConfig


def text_of(
    model_type: str, text: Family, *, left_out: tuple[str, ...], renames: tuple[tuple[str, str], ...]
) -> Family:
    """The family of a multimodal type: `text` with the names of its tensors inside the larger model."""

    def read(keys: Keys) -> ModelConfig:
        inner = keys.need("text_config")
        keys.ignore(*keys.values)  # the rest describes the image encoder and its tokens
        inside = Keys({**inner, "model_type": text.types[0]}, f"{keys.place}: text_config", keys.tensors)
        config = text.read(inside)
        inside.finish()
        return config

    return replace(text, types=(model_type,), read=read, left_out=left_out, renames=renames)


INSIDE = ((r"^language_model\.(model|lm_head)\.", r"\1."), (r"^model\.language_model\.", "model."))
VISION = (r"(model\.)?(vision_tower|vision_model|mm_projector|multi_modal_projector)\..*",)

KIMI_K25 = text_of("kimi_k25", deepseek.V3, left_out=VISION, renames=(*INSIDE, (r"^model\.blocks\.", "model.layers.")))
GEMMA3_MULTIMODAL = text_of("gemma3", gemma.GEMMA3, left_out=VISION, renames=INSIDE)
LLAMA4_MULTIMODAL = text_of("llama4", llama4.LLAMA4, left_out=VISION, renames=INSIDE)
