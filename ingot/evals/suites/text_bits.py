"""Language modelling: bits per byte of texts, one number for each domain.

    {suite: text_bits, domains: {prose: [novels.jsonl.gz], code: [sources.parquet], news: [news.txt]}}

    bits per byte = -sum log2 p(token | before) / UTF-8 bytes of the texts

Each text is read from its beginning in windows of the model's context, after the token that begins a text: the harness's rolling
log-likelihood. Rows of JSONL, CSV and Parquet files are texts; a plain text file is cut at line ends into texts of about
`characters` characters. A standard error is over texts.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.rows import fingerprints, need, read_rows
from ingot.evals.bases.file_suite import DATA_VARIABLE, fingerprint_of
from ingot.evals.bases.identity import digest, unique
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Passage
from ingot.evals.scores.scores import metric_of_units
from ingot.evals.suites.bits_per_byte import ratio_units
from ingot.workspace.errors import DataError

ROWS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


class TextBits(Suite):
    """Bits per byte of texts, by domain."""

    forms: ClassVar[tuple[Form, ...]] = ()
    thinks: ClassVar[bool] = False

    domains: Mapping[str, tuple[str, ...]] = Field(
        {"wikitext2": ("wikitext2/test.txt*",)},
        min_length=1,
        description="files of each domain: texts, JSONL or Parquet; also patterns below the data folder",
    )
    column: str = Field("text", description="the column of a row that is its text")
    characters: int = Field(8000, ge=1, description="plain text files are cut into texts of about this many characters")
    limit: int | None = Field(None, ge=1, description="only the first texts of each domain, so many")
    subset: str = Field(
        "", description="only the texts of this file, which `ingot eval subset` makes, of a single domain"
    )

    @model_validator(mode="after")
    def _one_domain(self) -> Self:
        if self.subset and len(self.domains) > 1:
            raise ValueError("a subset is of the texts of one domain: measure each domain as a suite of its own")
        return self

    def measure(self, subject: Subject) -> Measuring:
        """Ask for the likelihood of every text."""
        texts = {domain: self._texts(files, subject) for domain, files in self.domains.items()}
        answers = iter((yield [Passage(text) for each in texts.values() for text in each]))
        metrics = []
        for domain, each in texts.items():
            bits = [-next(answers).logprob / math.log(2) for _ in each]
            values = ratio_units(bits, [len(text.encode("utf-8")) for text in each]).values()
            units = dict(zip(unique(map(digest, each)), values, strict=True))
            metrics.append(metric_of_units(f"text_bits/{domain}", units, f"Bits per byte, {domain}", False))
        return Measured(metrics)

    def outside(self) -> dict[str, Any]:
        """The files are part of what is measured."""
        return fingerprints(tuple(file for files in self.domains.values() for file in files)) | fingerprint_of(
            self.subset
        )

    def _texts(self, files: tuple[str, ...], subject: Subject) -> list[str]:
        from ingot.evals.scores.subset import subset_rows

        found = [text for file in files for path in paths_of(file, subject.data) for text in self._of_file(path)]
        if self.subset and found:
            found = [found[number] for number in subset_rows(Path(self.subset), len(found))]
        found = list(subject.some(found if self.limit is None else found[: self.limit]))
        if not found:
            raise DataError(
                "there is no text here",
                place=f"suite text_bits: {', '.join(files)}",
                fix="give files that are there, or --data FOLDER",
            )
        return found

    def _of_file(self, path: Path) -> Iterator[str]:
        if any(ending in path.name for ending in ROWS):
            rows = (need(row, self.column, str, place) for place, row in read_rows(str(path)))
            return (text for text in rows if text)
        return pieces(plain_text(path), self.characters)


def plain_text(path: Path) -> str:
    """A text file, compressed or not."""
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import whole

    try:
        with path.open("rb") as file:
            return whole(file, str(path)).decode("utf-8")
    except (Unreadable, UnicodeDecodeError) as error:
        raise DataError(f"the file cannot be read: {error}", place=str(path), fix="give text in UTF-8") from error


def pieces(text: str, characters: int) -> Iterator[str]:
    """The text in parts of at least `characters` characters, each of which ends with a line."""
    piece: list[str] = []
    size = 0
    for line in io.StringIO(text, newline="\n"):  # other line ends are characters of the text
        piece.append(line)
        size += len(line)
        if size >= characters:
            yield "".join(piece)
            piece, size = [], 0
    if "".join(piece).strip():
        yield "".join(piece)


def paths_of(pattern: str, data: Path | None) -> list[Path]:
    """A file, or the files of a pattern below the data folder."""
    folder = data or (Path(os.environ[DATA_VARIABLE]) if DATA_VARIABLE in os.environ else None)
    if Path(pattern).is_file() or folder is None:
        return [Path(pattern)] if Path(pattern).is_file() else []
    return sorted(folder.glob(pattern))
