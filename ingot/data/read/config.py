"""The configuration of sources of raw text. A source is recognised by the key it has:

    {python: installed}                 the running Python distribution
    {files: "crawl/*.warc.gz"}          files, read by what their name ends in
    {code: "projects/*.tar.gz"}         source trees: folders, tar and zip archives
    {dataset: "folder or hub name"}     a data set of the Hugging Face `datasets` library

Paths are anything fsspec opens: `data/*.jsonl`, `s3://bucket/crawl/*.warc.gz`, `memory://x`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from ingot.workspace.config import Config
from ingot.workspace.functions import FunctionName

FORMATS = ("warc", "html", "jsonl", "csv", "tsv", "parquet", "arrow", "text", "mediawiki")
OWN_FORMAT = FunctionName("file format", "read(file, path)", FORMATS)
ColumnType = Literal["string", "integer", "number", "boolean"]

BASE_COLUMNS = ("id", "text", "source", "kind", "path", "url", "date", "mime", "title")
"""Columns of every document, whatever its source; those a reader knows nothing of are null."""


class SourceConfig(Config):
    """Options that every source has."""

    name: str = Field(description="the `source` column of its documents, and the beginning of ids made here")
    max_document_bytes: int = Field(
        default=10_000_000,
        gt=0,
        description="a longer file, line or record is skipped, counted and named; a longer text file (also Markdown and "
        "reStructuredText) is cut as by `cut_at`, into documents of at most that size",
    )
    bad_text: Literal["repair", "drop"] = Field(
        default="repair",
        description="a text with bytes that are not UTF-8, NUL characters or lone surrogates: `repair` (U+FFFD for each, "
        "NUL left out) or `drop`; both are counted",
    )
    on_damage: Literal["continue", "stop"] = Field(
        default="continue",
        description="a damaged file, record or row: `continue` with the next one and count it, or `stop` the run",
    )

    def columns(self) -> dict[str, ColumnType]:
        """Columns of the documents besides `BASE_COLUMNS`."""
        return {}


class PythonSource(SourceConfig):
    """The Python distribution that runs this program: a real, dirty corpus that every machine has."""

    python: Literal["installed"] = Field(
        default="installed", description="the running interpreter's standard library and site-packages"
    )
    name: str = Field(
        default="python",
        description="prefix of the `source` column: NAME-docstrings, NAME-text, NAME-metadata, NAME-code",
    )
    code_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="share of the Python files (picked by hash of the path) that also become whole code documents; "
        "every file gives its docstrings as prose",
    )
    max_document_bytes: int = Field(default=1_000_000, gt=0, description="a larger file is skipped, counted and named")
    bad_text: Literal["repair", "drop"] = Field(
        default="drop", description="files that are not UTF-8, mostly test data of codecs: `drop` or `repair`"
    )


class RowsSource(SourceConfig):
    """Sources with one document a row."""

    text: str = Field(default="text", description="the column that holds the document")
    id: str = Field(
        default="id",
        description="the column that holds the document's own id; a row without one gets NAME:PATH and its number",
    )
    keep: dict[str, ColumnType] = Field(
        default={},
        description="more columns to carry along with their type, as in {score: number}; "
        "kind, path, url, date, mime and title are taken where they exist",
    )

    def columns(self) -> dict[str, ColumnType]:
        return dict(self.keep)

    @field_validator("keep")
    @classmethod
    def _not_ours(cls, keep: dict[str, ColumnType]) -> dict[str, ColumnType]:
        if taken := sorted(set(keep) & set(BASE_COLUMNS)):
            raise ValueError(f"{', '.join(taken)}: every document has this column; leave it out of `keep`")
        return keep


class FilesSource(RowsSource):
    """Files: WARC and WET, HTML, JSONL, Parquet, CSV, plain text and MediaWiki XML; compressed or not."""

    files: str | list[str] = Field(
        description="path, glob or folder, or a list of them, relative to the working directory; or URLs that fsspec opens"
    )
    name: str = Field(default="files", description="the `source` column of its documents")
    format: Annotated[str, OWN_FORMAT] | None = Field(
        default=None,
        description=f"how all of them are read: {', '.join(FORMATS)}, or a function of yours, file.py:read; by default what a "
        "name ends in decides",
    )
    cut_at: int | None = Field(
        default=None,
        ge=1000,
        description="a text file (also Markdown and reStructuredText) longer than so many bytes becomes several documents of "
        "about that size, cut at empty lines or ends of lines, so that a part of a single long text can be held out; "
        "`max_document_bytes` is of these then (null: a file of at most `max_document_bytes` is one document)",
    )

    @model_validator(mode="after")
    def _format_has_them(self) -> FilesSource:
        if self.format in ("warc", "html", "text", "mediawiki"):
            self.refuse("text", "id", "keep", because=f"format: {self.format} has no columns")
        if self.format not in (None, "text"):
            self.refuse("cut_at", because=f"only text files are cut, not those of format: {self.format}")
        return self


class CodeSource(SourceConfig):
    """Source trees: folders, tar and zip archives. One document a file; binary files are counted and left out."""

    code: str | list[str] = Field(description="folder, archive or glob of archives, or a list of them")
    name: str = Field(default="code", description="the `source` column of its documents")
    max_document_bytes: int = Field(default=1_000_000, gt=0, description="a larger file is skipped, counted and named")
    skip: list[str] = Field(
        default=[".git", ".hg", ".svn", "__pycache__", "node_modules"],
        description="folders of these names are not looked into",
    )


class DatasetSource(RowsSource):
    """A data set of the `datasets` library: a folder made by `save_to_disk`, or a name on the hub."""

    dataset: str = Field(description="folder, or name on the hub (needs the network once; then it is in the cache)")
    name: str = Field(default="dataset", description="the `source` column of its documents")
    configuration: str | None = Field(
        default=None, description="the configuration of a hub data set, as in `wikitext-2-v1`"
    )
    split: str = Field(default="train", description="which split of it")


SOURCES = ("python", "files", "code", "dataset")


def _which_source(value: Any) -> str | None:
    """The key that a source has."""
    for key in SOURCES:
        if (isinstance(value, dict) and key in value) or (not isinstance(value, dict) and hasattr(value, key)):
            return key
    return None


Source = Annotated[
    Annotated[PythonSource, Tag("python")]
    | Annotated[FilesSource, Tag("files")]
    | Annotated[CodeSource, Tag("code")]
    | Annotated[DatasetSource, Tag("dataset")],
    Discriminator(
        _which_source,
        custom_error_type="unknown_source",
        custom_error_message="a source is {python: installed}, {files: PATTERN}, {code: FOLDER} or {dataset: NAME}",
    ),
]
