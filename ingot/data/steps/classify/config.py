"""Options of `ingot classifier train`, and the fingerprints of a classifier's files."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import fingerprint


def fingerprint_of(name: str, step: str) -> str:
    """The fingerprint of a file that a step names; a missing file is said at once."""
    path = Path(name)
    if not path.is_file():
        raise RecipeError(
            f"no such file: {name}", place=f"step {step}", fix="check the path; it starts in the working directory"
        )
    return fingerprint(path)


class TrainConfig(Config):
    """Options of `ingot classifier train`. Dimension, n-grams and epochs are near fastText's defaults for classifiers."""

    dimension: int = Field(default=32, ge=1, le=1024, description="length of a feature's vector")
    word_ngrams: int = Field(default=2, ge=1, le=15, description="longest run of words that is a feature; DCLM: 2")
    min_characters: int = Field(default=0, ge=0, le=15, description="shortest character n-gram")
    max_characters: int = Field(default=0, ge=0, le=15, description="longest character n-gram; 0: none")
    buckets: int = Field(default=1_000_000, ge=1, le=2**31 - 1, description="rows that n-grams are hashed into")
    min_count: int = Field(default=1, ge=1, description="a rarer word is not a feature of its own")
    epochs: int = Field(default=5, ge=1, description="passes over the texts")
    learning_rate: float = Field(default=0.1, gt=0, description="at the start; falls to 0 in a straight line")
    held_out: float = Field(default=0.1, ge=0, lt=1, description="share of the texts that the report is made on")
    seed: int = Field(default=1, ge=0, description="of the first values and of the order of the texts")


def model_fingerprints(model: str, step: str) -> dict[str, str]:
    """Fingerprints of a classifier: a fastText file, or the two files of a folder."""
    path = Path(model)
    files = [path / "classifier.json", path / "weights.safetensors"] if path.is_dir() else [path]
    return {str(file): fingerprint_of(str(file), step) for file in files}
