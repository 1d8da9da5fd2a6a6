"""The token mixers that a block may name by `kind`, besides `file.py:Name`; without a kind it is softmax attention.

A mixer is one file in this folder (mixer.py says what it must have) and one entry here.
"""

from __future__ import annotations

from typing import Annotated

from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.gated_delta import GatedDeltaConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.lightning import LightningConfig
from ingot.model.mixers.mamba2 import Mamba2Config
from ingot.model.mixers.mixer import MixerConfig
from ingot.model.mixers.mla import MlaConfig
from ingot.model.mixers.parallel import ParallelConfig
from ingot.workspace.kinds import Parts

MIXERS = Parts(
    MixerConfig,  # type: ignore[type-abstract]
    "mixer",
    (AttentionConfig, MlaConfig, LightningConfig, GatedDeltaConfig, KdaConfig, Mamba2Config, ParallelConfig),
    default="attention",
)
AnyMixer = Annotated[MixerConfig, MIXERS]
