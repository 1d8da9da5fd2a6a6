"""Reward models as Hugging Face folders: `…ForSequenceClassification` with one label.

transformers reads the score of the one label from a linear row `score.weight` at the last token that is no padding. It has no
head for the next token: an exported reward model loses its own (`lm_head`), and one that is read back is tied to its embedding.
"""

from __future__ import annotations

from typing import Any

from ingot.checkpoints.families.family import Layout, maps_to
from ingot.model.config import ModelConfig
from ingot.model.transformer import REWARD_HEAD, VALUE_HEAD
from ingot.workspace.errors import ArtifactError

SCORE, LANGUAGE_HEAD = "score.weight", "lm_head.weight"
LABELS: dict[str, Any] = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "problem_type": "regression"}
ENDINGS = "ForCausalLM", "ForSequenceClassification"


def is_classifier(values: dict[str, Any]) -> bool:
    """Whether a config.json is that of a sequence classifier."""
    return any(str(name).endswith(ENDINGS[1]) for name in values.get("architectures") or ())


def read_classifier(values: dict[str, Any], place: str) -> dict[str, Any]:
    """The config.json of the language model inside; a classifier of several labels is an error."""
    labels = values.get("id2label") or {}
    if len(labels) != 1 and values.get("num_labels") != 1:
        raise ArtifactError(
            f"a classifier with {len(labels) or 2} labels is not a reward model",
            place=place,
            fix="use one with a single label",
        )
    names = [str(name).replace(ENDINGS[1], ENDINGS[0]) for name in values["architectures"]]
    kept = {key: value for key, value in values.items() if key not in (*LABELS, "num_labels")}
    return kept | {"architectures": names, "tie_word_embeddings": True}


def write_classifier(values: dict[str, Any]) -> dict[str, Any]:
    """The config.json of a reward model, from that of its language model."""
    names = [str(name).replace(*ENDINGS) for name in values["architectures"]]
    return values | LABELS | {"architectures": names}


def as_classifier(config: ModelConfig) -> ModelConfig:
    """The model that is exported: one with a reward head loses the language head, a critic is left behind (PPO)."""
    config = config.model_copy(update={"heads": tuple(name for name in config.heads if name != VALUE_HEAD)})
    if unknown := [name for name in config.heads if name != REWARD_HEAD]:
        raise ArtifactError(
            f"no Hugging Face class has a head {unknown[0]!r}",
            fix="such a model stays in Ingot's own checkpoint format",
        )
    return config.model_copy(update={"tied_embeddings": True}) if config.heads else config


def language_model(config: ModelConfig) -> ModelConfig:
    """The same without further heads."""
    return config.model_copy(update={"heads": ()})


def classifier_layout(layout: Layout, config: ModelConfig) -> Layout:
    """The layout of a model with a reward head, from that of its language model; others keep theirs."""
    if not config.heads:
        return layout
    kept = {name: known for name, known in layout.items() if name != LANGUAGE_HEAD}
    return kept | {SCORE: maps_to(f"heads.{REWARD_HEAD}.weight")}
