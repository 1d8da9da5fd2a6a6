"""Makes a suite of a YAML file: five keys say how rows become questions, in Jinja, as in lm-eval's task files.

    # capitals.yaml
    rows: capitals.jsonl                                  # beside this file; or hf:NAME:SPLIT
    question: "Question: {{question}}\\nAnswer:"
    options: choices                                      # ranked by likelihood; without it an answer is written
    answer: label

    ingot eval MODEL capitals.yaml                        in a recipe  eval: {suites: [capitals.yaml]}

`question` is a text with columns in it. `options` and `answer` are a column (`choices.text`), an expression (`[a, b, c]`,
`choices.label.index(key)`), or texts with columns in them (`["{{a}}", "{{b}}"]`). The answer is the right option's number from 0,
its letter or its text, a list where several are right; or, without options, the text or texts that are accepted.

Keys besides: `shot_rows` (worked examples; else other rows), `cluster`, with options `group`, `description`, `delimiter` (as in
choices.py), without them `stop`, and every option of the base, such as `shots` or `scores`. A recipe may change each of them:
`{suite: capitals.yaml, shots: 5}`. Metrics are called after the file: `capitals/accuracy`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import Field, ValidationError, create_model

from ingot.envs.rows import HUB, Row, stream_rows
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, gold_index
from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.bases.identity import digest
from ingot.evals.bases.row_text import RowText, row_text
from ingot.evals.bases.short_answers import Short, ShortAnswerSuite
from ingot.evals.bases.suite import Suite
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.nearest import suggestion

TEXTS = ("question", "options", "answer", "group", "cluster")  # keys with columns in them
NO_KEYS = ("suite", "files", "shot_files", "subset")  # options that a recipe gives


class DataSuite(FileSuite):
    """A suite whose rows are read as a YAML file says."""

    path: ClassVar[Path]
    question: str = Field(min_length=1, description="what is asked of a row: a text with {{columns}}")
    answer: str = Field(min_length=1, description="a column or expression: what is right")
    cluster: str = Field("", description="a column or expression: rows that share it are not independent")

    @classmethod
    def kind_name(cls) -> str:
        return str(cls.path)

    @property
    def short_name(self) -> str:
        return re.sub(r"\W", "_", self.path.stem.lower())

    def texts(self, key: str) -> list[RowText]:
        """What a key says: of several texts one for each, of an empty one none."""
        source = getattr(self, key, "")
        if isinstance(source, tuple):
            return [row_text(each, text=True) for each in source]
        return [row_text(source, text=key == "question")] if source else []

    def value(self, key: str, row: Row, place: str) -> Any:
        """What a key says of a row."""
        found = [text.of(row, f"{place}, {key} of {self.path.name}") for text in self.texts(key)]
        return found if isinstance(getattr(self, key), tuple) else found[0] if found else ""

    def in_cluster(self, row: Row, place: str) -> str:
        """The name of the row's cluster."""
        found = self.value("cluster", row, place)
        return digest(str(found)) if found != "" else ""


class DataChoices(DataSuite, ChoiceSuite):
    """Questions with options, of which the likeliest is the model's answer."""

    options: str | tuple[str, ...] = Field(description="a column or expression, or texts with {{columns}}")
    group: str = Field("", description="a column or expression: the part of the suite that a row belongs to")
    description: str = Field("", description="what stands before everything; the system message of a chat model")
    delimiter: str = Field(" ", description="what stands between a question and its answer, in plain text")

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        options, answer = self.value("options", row, place), self.value("answer", row, place)
        if not isinstance(options, list | tuple) or len(options) < 2:
            fix = 'write a column that holds a list, ["{{a}}", "{{b}}"], or leave options out'
            raise DataError(f"options: {str(options)[:60]!r} is no list of two or more", place=place, fix=fix)
        texts = tuple(map(str, options))
        golds = [right_option(each, texts, place) for each in (answer if isinstance(answer, list) else [answer])]
        if not golds:
            raise DataError("answer: no option is right", place=place, fix="give one, or take the row out")
        return Item(
            self.value("question", row, place),
            texts,
            golds[0],
            description=self.description,
            delimiter=self.delimiter,
            group=str(self.value("group", row, place)),
            cluster=self.in_cluster(row, place),
            also_gold=tuple(golds[1:]),
        )


class DataAnswers(DataSuite, ShortAnswerSuite):
    """Questions whose short answers are written, and compared with those that are accepted."""

    def short(self, row: Row, place: str) -> Short:
        """The question of a row."""
        answer = self.value("answer", row, place)
        accepted = tuple(map(str, answer if isinstance(answer, list) else [answer]))
        if not any(accepted):
            raise DataError("answer: there is none", place=place, fix="give a text or a list of texts")
        return Short(self.value("question", row, place), accepted, self.in_cluster(row, place))


def right_option(answer: Any, options: Sequence[str], place: str) -> int:
    """The number of the right option, of its text, its letter or itself."""
    known = isinstance(answer, str) and answer in options
    return options.index(answer) if known else gold_index(answer, len(options), place)


def load_data_suite(name: str) -> type[Suite]:
    """The suite of a YAML file; a RecipeError says in which line what is wrong."""
    path = Path(name).resolve()
    if not path.is_file():
        raise RecipeError(f"there is no file {path}", fix="write the path from the folder of the recipe that names it")
    return _make_suite(path, path.read_bytes())


@lru_cache(maxsize=64)
def _make_suite(path: Path, content: bytes) -> type[Suite]:
    lines, given = _read(path, content)

    def problem(key: str, text: str, fix: str) -> RecipeError:
        return RecipeError(f"{path}:{lines.get(key, 1)}: {text}", fix=fix)

    base: type[DataSuite] = DataChoices if "options" in given else DataAnswers
    options = {key: field for key, field in base.model_fields.items() if key not in NO_KEYS}
    known = ["rows", "shot_rows", *options] + ([] if base is DataChoices else ["options", "stop"])
    for key in given:
        if key not in known:
            raise problem(key, f"unknown key {key}", suggestion(key, known, "known keys"))
    for key in ("rows", "question", "answer"):
        if not given.get(key):
            raise problem(key, f"{key} is missing", "write rows, question, answer, and options if there are choices")
    chosen = {key: value for key, value in given.items() if key in options}
    try:
        read = _with_defaults(base, path, {})(**chosen)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = str(wrong["loc"][0]) if wrong["loc"] else next(iter(given))
        raise problem(key, f"{key}: {wrong['msg']}", f"change {key}") from error
    kind = _with_defaults(base, path, {key: getattr(read, key) for key in chosen})
    kind.data_rows, kind.data_shots = (_beside(path, given.get(key, ())) for key in ("rows", "shot_rows"))
    if "stop" in given:
        kind.stop = _texts(given["stop"])  # type: ignore[attr-defined]  # a key of DataAnswers alone
    first = _first_row(kind.data_rows[0])
    for key in TEXTS:
        try:
            columns = [column for text in read.texts(key) for column in text.columns]
        except ValueError as error:
            raise problem(key, f"{key}: {error}", "write a text with {{columns}}, or the name of a column") from error
        for column in columns:
            if first is not None and column not in first[1]:
                fix = suggestion(column, first[1], "columns")
                raise problem(key, f"{key}: {first[0]} has no column {column}", fix)
    return kind


def _with_defaults(base: type[DataSuite], path: Path, values: Mapping[str, Any]) -> type[DataSuite]:
    """A suite of this file, whose options are by default what the file says."""
    fields: dict[str, Any] = {}
    for key, value in values.items():
        field = copy(base.model_fields[key])
        field.default = value
        fields[key] = (field.annotation, field)
    made: type[DataSuite] = create_model(base.__name__, __base__=base, __doc__=base.__doc__, **fields)
    made.path = path
    return made


def _read(path: Path, content: bytes) -> tuple[dict[str, int], dict[str, Any]]:
    """The line of every key, and the values: texts and lists of texts, so that `no` and `1.0` stay what is written."""
    try:
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.BaseLoader)
        found = yaml.load(content, Loader=yaml.BaseLoader)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = path if mark is None else f"{path}:{mark.line + 1}"
        reason = getattr(error, "problem", None) or error
        raise RecipeError(f"{where}: not valid YAML: {reason}", fix="put texts with {{ or : in quotes") from error
    if not isinstance(root, yaml.MappingNode) or not isinstance(found, dict):
        raise RecipeError(
            f"{path}: it is no mapping", fix="write rows, question, answer, and options if there are choices"
        )
    return {key.value: key.start_mark.line + 1 for key, _ in root.value}, found


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _beside(path: Path, value: Any) -> tuple[str, ...]:
    """Files from the folder of this one; data sets of the hub as they are named."""
    return tuple(spec if spec.startswith(HUB) else str(path.parent / spec) for spec in _texts(value))


def _first_row(spec: str) -> tuple[str, Row] | None:
    """The first row of a file that is there: a column that it lacks is found before a model is loaded."""
    return next(stream_rows(spec), None) if not spec.startswith(HUB) and Path(spec).is_file() else None
