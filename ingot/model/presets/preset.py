"""Presets with types: the model's configuration, what its report counted, and how it was trained."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ingot.model.config import ModelConfig
from ingot.model.presets.data import entries, entry, merged, started
from ingot.workspace.config import Config

UNITS = {"M": 10**6, "B": 10**9, "T": 10**12}
Share = Literal["body", "embedding", "head", "multi_token"]
ALL: tuple[Share, ...] = ("body", "embedding", "head")


def read_quantity(value: Any) -> Any:
    """`671B` as a number."""
    if isinstance(value, str) and value[-1:] in UNITS:
        return round(float(value[:-1]) * UNITS[value[-1]])
    return value


Quantity = Annotated[int, BeforeValidator(read_quantity)]


class Published(Config):
    """The numbers of a system's report, and which parameters it counts."""

    total: Quantity = Field(description="all parameters")
    active: Quantity | None = Field(None, description="parameters that a token uses; null for a dense model")
    total_counts: tuple[Share, ...] = Field(ALL, description="what the total counts")
    active_counts: tuple[Share, ...] = Field(ALL, description="what the active count counts")
    reason: str = Field("", description="why our count differs by more than one per cent")


class RecipeFacts(Config):
    """A published training recipe in short facts; empty where the sources are silent."""

    size: str = Field("", description="which size these facts are of, where they differ")
    base: str = Field("", description="the model it starts from")
    tokens: str = Field("", description="how much it was trained on")
    data: str = Field("", description="on what")
    optimizer: str = Field("", description="optimizer and its constants")
    schedule: str = Field("", description="learning rate over time")
    batch: str = Field("", description="tokens or sequences per step")
    sequence: str = Field("", description="length of the training sequences")
    initial: str = Field("", description="initial weights")
    losses: str = Field("", description="terms besides next-token prediction, and balancing")
    precision: str = Field("", description="number formats")
    anneal: str = Field("", description="the last stretch of pre-training")
    extension: str = Field("", description="how the context was extended")
    post_training: str = Field("", description="what followed")
    compute: str = Field("", description="machines and hours")


class Preset(Config):
    """One size of one system, or its miniature (`mini`), which has no published counts."""

    name: str = Field(description="its name")
    system: str = Field(description="the file it is in")
    title: str = Field(description="the system's own name")
    about: str = Field(description="what is particular to its architecture")
    sources: str = Field(description="where the numbers come from")
    mini: bool = Field(description="whether it is a miniature")
    published: Published | None = Field(None, description="what the report counted")
    recipe: RecipeFacts = Field(RecipeFacts(), description="how it was trained")
    notes: tuple[str, ...] = Field((), description="what is doubtful or not expressed")
    model: ModelConfig = Field(description="the model")


def preset(name: str) -> ModelConfig:
    """The model of a preset."""
    return load_preset(name).model


@cache
def load_preset(name: str) -> Preset:
    """A preset with all that is known about it."""
    found = entry(name)
    file, size = found.file, found.size
    return Preset(
        name=name,
        system=found.system,
        title=file["title"],
        about=file["about"],
        sources=file["sources"],
        mini=found.mini,
        published=size.get("published"),
        recipe=RecipeFacts.model_validate(merged(file["recipe"], size.get("recipe", {}))),
        notes=(*file.get("notes", ()), *size.get("notes", ())),
        model=ModelConfig.model_validate(started(size["model"])),  # merged here: a size may replace all of another
    )


def presets() -> list[Preset]:
    """All presets, full sizes and miniatures."""
    return [load_preset(name) for name in entries()]
