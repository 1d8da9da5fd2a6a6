"""The union of the token mixers: a block names one by `kind`; without a kind it is softmax attention.

A mixer is one file in this folder (mixer.py says what it must have) and one line here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.gated_delta import GatedDeltaConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.lightning import LightningConfig
from ingot.model.mixers.mamba2 import Mamba2Config
from ingot.model.mixers.mla import MlaConfig
from ingot.model.mixers.parallel import ParallelConfig


def _with_kind(value: Any) -> Any:
    return {"kind": "attention", **value} if isinstance(value, dict) else value


AnyMixer = Annotated[
    AttentionConfig | MlaConfig | LightningConfig | GatedDeltaConfig | KdaConfig | Mamba2Config | ParallelConfig,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]
