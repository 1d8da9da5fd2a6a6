"""A suite whose questions are rows of files: local ones, or a published data set.

    {suite: gsm8k}                                     the data folder's gsm8k/…, else the data set of the hub
    {suite: gsm8k, files: [mine.jsonl]}                JSONL (also compressed), Parquet, or hf:NAME:CONFIGURATION:SPLIT
    ingot eval MODEL --suite gsm8k --data FOLDER       a folder that has gsm8k/test*.jsonl

A data set that is nowhere to be found is an error that says where it can be had.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import HUB, Row, fingerprints, read_rows
from ingot.evals.bases.suite import Subject, Suite
from ingot.workspace.errors import DataError
from ingot.workspace.files import fingerprint

DATA_VARIABLE = "INGOT_DATA"  # the data folder, where no option names one


class FileSuite(Suite):
    """A suite with questions in files."""

    local: ClassVar[tuple[str, ...]] = ()  # patterns below the data folder; the first that has files is used
    hub: ClassVar[
        tuple[str, ...]
    ] = ()  # data sets of the hub, where the data folder has none: hf:NAME:CONFIGURATION:SPLIT
    data_rows: ClassVar[tuple[str, ...]] = ()  # of a suite that is data alone (data_suite.py): what its file names
    data_shots: ClassVar[tuple[str, ...]] = ()  # and the rows of its worked examples
    files: tuple[str, ...] = Field(
        (), description="files of questions, instead of the published ones: JSONL, Parquet, CSV, or hf:NAME:SPLIT"
    )
    limit: int | None = Field(None, ge=1, description="use only the first N questions")
    subset: str = Field("", description="only the questions of this file, which `ingot eval subset` makes")

    @property
    def given(self) -> tuple[str, ...]:
        """The files that the recipe names, or else a suite that is data alone."""
        return self.files or self.data_rows

    @property
    def given_shots(self) -> tuple[str, ...]:
        """The same for the rows of worked examples, in a suite that takes some."""
        named: tuple[str, ...] = getattr(self, "shot_files", ())
        return named or self.data_shots

    def all_rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows with their places, whatever the limits."""
        given = self.given
        return rows_of(given or self.local, self.hub, subject.data, given=bool(given), suite=self.short_name)

    def rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows that are asked, no more than the limits allow."""
        return self.some(self.all_rows(subject), subject)

    def some(self, rows: Sequence[tuple[str, Row]], subject: Subject) -> list[tuple[str, Row]]:
        """Those of all rows that are asked: the subset's, and no more than the limits allow."""
        if self.subset:
            from ingot.evals.scores.subset import subset_rows

            rows = [rows[number] for number in subset_rows(Path(self.subset), len(rows))]
        return list(subject.some(rows if self.limit is None else rows[: self.limit]))

    def outside(self) -> dict[str, str]:
        """The files are part of what is measured, those of worked examples too."""
        shots = {f"shots/{name}": found for name, found in fingerprints(self.given_shots).items()}
        return fingerprints(self.given) | shots | fingerprint_of(self.subset)


def fingerprint_of(subset: str) -> dict[str, str]:
    """The fingerprint of a subset's file, if there is one; a missing one is an error when it is read."""
    path = Path(subset)
    return {path.name: fingerprint(path)} if path.is_file() else {}


def rows_of(
    files: Sequence[str], hub: Sequence[str], data: Path | None, *, given: bool = False, suite: str = ""
) -> list[tuple[str, Row]]:
    """The rows of the files that the user gave; else of those below the data folder; else of the hub's data sets."""
    if given:
        return [row for spec in files for row in read_rows(spec)]
    folder = data or (Path(os.environ[DATA_VARIABLE]) if DATA_VARIABLE in os.environ else None)
    if folder is not None:
        for pattern in files:
            if found := sorted(folder.glob(pattern)):
                return [row for path in found for row in read_rows(str(path))]
    if not hub:
        raise DataError(
            "its questions are not there",
            place=f"suite {suite}",
            fix=f"give --data FOLDER (or {DATA_VARIABLE}) with {' or '.join(files)} in it, or files: [FILE] in the suite",
        )
    try:
        return [row for spec in hub for row in read_rows(spec)]
    except DataError as error:
        raise DataError(
            f"its questions are not there, and the hub did not give them: {error.problem}",
            place=f"suite {suite}",
            fix=f"run `{loading(hub[0])}` once where there is a network, or give --data FOLDER "
            f"(or {DATA_VARIABLE}) with {' or '.join(files)} in it, or files: [FILE] in the suite",
        ) from error


def loading(spec: str) -> str:
    """The call that brings hf:NAME:CONFIGURATION:SPLIT into the hub's cache."""
    name, *configuration, split = spec.removeprefix(HUB).split(":")
    return f"datasets.load_dataset({', '.join(map(repr, (name, *configuration)))}, split={split!r})"
