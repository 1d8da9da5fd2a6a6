"""The doctor's checks of pre-training data: intact shards, ids in range, shuffled rows, a seed for each stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.planner.check import Check
from ingot.planner.mixture_weights import EPOCHS, fit_mixture
from ingot.recipe.recipe import FromPath, FromStage, Recipe, RecipeStage
from ingot.recipe.work import StageWork
from ingot.tokens.loader import MixtureLoader
from ingot.tokens.shards import INDEX_FILE, SOURCE_FILES, Shards
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import ArtifactError, DataError, RecipeError
from ingot.workspace.files import file_sha256, read_json

CHECKSUM_SECONDS = 10.0
"""Files are compared with their checksums, the smallest first, until this is over; the run itself compares all."""
SAMPLES, SAMPLE_TOKENS = 64, 4096
"""Stretches of every source whose ids are looked at, and their length."""
ROWS, PARTS = 256, 16
"""Rows at the start of a run, and the parts of a source over which they should be spread."""
MOST_NEIGHBOURS = 0.1
"""Share of rows that may be followed by their neighbour in the source; chance gives 1 in their number."""


def check_data(recipe: Recipe, works: list[StageWork]) -> Iterator[Check]:
    """Everything about the data of the pre-training stages that are not finished."""
    made = {work.stage.name: work for work in works}
    for work in works:
        if isinstance(work.stage.config, PretrainConfig) and work.done is None:
            yield check_shards(work.stage, made)
    yield check_seeds(recipe)


def check_shards(stage: RecipeStage, works: Mapping[str, StageWork]) -> Check:
    """The shards of one stage, and the order in which it reads them."""
    name, config = f"{stage.name} data", stage.config
    assert isinstance(config, PretrainConfig)
    folder = shards_folder(stage, works)
    if folder is None:
        return Check(name, "ok", "its shards are not made yet: look again after the stage that makes them")
    try:
        shards = Shards(folder)
        compared, whole = compare_checksums(folder)
        for source in shards.sources.values():
            for start in np.linspace(0, max(0, len(source) - SAMPLE_TOKENS), SAMPLES, dtype=np.int64):
                source.read(int(start), int(start) + SAMPLE_TOKENS)
        loader = MixtureLoader(
            folder,
            config.phases,
            sequence_length=config.sequence_length,
            batches=config.batch_sizes,
            total_steps=config.steps,
            seed=stage.seed,
            packing=config.packing,
            verify=False,
        )
        bad = unshuffled(loader)
    except (ArtifactError, DataError, RecipeError) as error:
        return Check(name, "fail", f"{error.place}: {error.problem}" if error.place else error.problem, error.fix)
    if bad is not None:
        return Check(name, "fail", bad, "report this: the loader draws rows by a permutation of the whole source")
    tokens = sum(len(source) for source in shards.sources.values())
    epochs = {source: count for source, count in loader.epochs().items() if count > EPOCHS}
    sound = f"ids in range, rows shuffled, {compared} of {whole} checksums compared"
    text = f"{tokens:,} tokens in {len(shards.sources)} sources, {sound}"
    if epochs:
        often = ", ".join(f"{source} {count:.1f} times" for source, count in epochs.items())
        return Check(
            name,
            "warn",
            f"{text}; read {often}",
            f"beyond {EPOCHS:g} epochs repeated text is worth little: {less_often(loader, config)}",
        )
    return Check(name, "ok", text)


def less_often(loader: MixtureLoader, config: PretrainConfig) -> str:
    """What to do about it: the nearest weights with which nothing is read too often, where there are some."""
    fix = "more data, or fewer steps"
    if len(config.phases) > 1:  # which of them is to give way nobody knows
        return fix
    (phase,) = config.phases
    rows = loader.batches.rows_before(loader.total_steps)
    try:
        found = fit_mixture({name: loader.rows_of(name) for name in phase.weights}, rows, phase.weights)
    except RecipeError:  # all of it together is too little
        return fix
    weights = ", ".join(f"{name}: {weight:.3g}" for name, weight in found.items())
    return f"{fix}, or weights: {{{weights}}}"


def shards_folder(stage: RecipeStage, works: Mapping[str, StageWork]) -> Path | None:
    """The folder of a stage's shards, if it exists."""
    source = stage.inputs.get("shards")
    if isinstance(source, FromPath):
        return source.path
    assert source is not None and not isinstance(source, Mapping)
    work = works[source.stage]
    return work.folder / source.artifact if work.done is not None else None


def compare_checksums(folder: Path) -> tuple[int, int]:
    """How many files were compared with their checksums, of how many; a difference is an error."""
    entries = read_json(folder / INDEX_FILE)["sources"]
    files = [
        (folder / source / file, entry["sha256"][file]) for source, entry in entries.items() for file in SOURCE_FILES
    ]
    files.sort(key=lambda pair: pair[0].stat().st_size)
    end = time.monotonic() + CHECKSUM_SECONDS
    compared = 0
    for path, expected in files:
        if time.monotonic() > end:
            break
        if file_sha256(path) != expected:
            raise ArtifactError(
                "its checksum is not the one in index.json", place=str(path), fix="run the tokenize stage again"
            )
        compared += 1
    return compared, len(files)


def unshuffled(loader: MixtureLoader) -> str | None:
    """The problem with the order of the first rows, if they are one long stretch of a source, or from a corner of it."""
    for name, starts in first_rows(loader).items():
        length = len(loader.shards.source(name.partition("@")[0]))
        followed = float(np.mean(np.diff(starts) == loader.sequence_length)) if len(starts) > 1 else 0.0
        parts = len(np.unique(starts * PARTS // length))
        if len(starts) >= 4 * PARTS and (followed > MOST_NEIGHBOURS or parts < PARTS // 2):
            spread = f"come from {parts} of its {PARTS} parts, {followed:.0%} of them in a row"
            return f"the first {len(starts)} rows of {name} {spread}"
    return None


def first_rows(loader: MixtureLoader) -> dict[str, NDArray[np.int64]]:
    """For every source, where in its stream the first rows of the run begin."""
    starts: dict[str, list[int]] = {}
    step = 0
    while step < loader.total_steps and sum(len(found) for found in starts.values()) < ROWS:
        for name, index in loader.rows(step):
            starts.setdefault(name, []).append(int(loader.row(name, index).starts[0]))
        step += 1
    return {name: np.asarray(found) for name, found in starts.items()}


def check_seeds(recipe: Recipe) -> Check:
    """Whether a pre-training stage would read the rows of a source in the order of one that its inputs come from.

    Two stages that begin from the same checkpoint may: they are compared on the same rows.
    """
    read: dict[
        str, dict[tuple[object, ...], str]
    ] = {}  # by stage: what it and the stages before it read, and which one did
    for stage in recipe.stages:
        config, seen = stage.config, read.setdefault(stage.name, {})
        for given in stage.inputs.values():
            for one in given.values() if isinstance(given, Mapping) else (given,):
                seen |= read[one.stage] if isinstance(one, FromStage) else {}
        if not isinstance(config, PretrainConfig):
            continue
        for source in dict.fromkeys(
            name for phase in config.phases for name, weight in phase.weights.items() if weight
        ):
            key = (str(stage.inputs.get("shards")), source, stage.seed, config.sequence_length, config.packing)
            if key in seen:
                text = f"{stage.name} reads {source} in the same order as {seen[key]}: the same rows once more"
                return Check(
                    "seeds", "warn", text, f"give {stage.name} a seed of its own, such as seed: {stage.seed + 1}"
                )
            seen[key] = stage.name
    return Check("seeds", "ok", "no stage reads rows in the order of one before it")
