"""`ingot classifier`: train a quality or topic classifier from labelled files, and score texts with one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.given import refuse_given
from ingot.cli.help import App
from ingot.workspace.errors import DataError, RecipeError

classifier_app = App(
    name="classifier",
    help="Train and use quality and topic classifiers for curation.",
    no_args_is_help=True,
    add_completion=False,
)
Files = list[Path] | None


@classifier_app.command("train")
def train_command(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="Folder to write.", show_default=False)],
    positive: Annotated[
        Files, typer.Option("--positive", help="Texts of the class `positive`; may be repeated.")
    ] = None,
    negative: Annotated[
        Files, typer.Option("--negative", help="Texts of the class `negative`; may be repeated.")
    ] = None,
    labelled: Annotated[Files, typer.Option("--labelled", help="Texts with a label column; may be repeated.")] = None,
    text: Annotated[str, typer.Option("--text", help="Column of the text.")] = "text",
    label: Annotated[str, typer.Option("--label", help="Column of the label.")] = "label",
    dimension: Annotated[int | None, typer.Option(help="Length of a feature's vector; default 32.")] = None,
    word_ngrams: Annotated[int | None, typer.Option(help="Longest word n-gram; default 2.")] = None,
    min_characters: Annotated[int | None, typer.Option(help="Shortest character n-gram; default 0.")] = None,
    max_characters: Annotated[int | None, typer.Option(help="Longest character n-gram; 0: none; default 0.")] = None,
    buckets: Annotated[int | None, typer.Option(help="Rows that n-grams are hashed into; default 1000000.")] = None,
    min_count: Annotated[int | None, typer.Option(help="Ignore words that are rarer; default 1.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the texts; default 5.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="First learning rate, which falls to 0; default 0.1.")
    ] = None,
    held_out: Annotated[
        float | None, typer.Option(help="Share of the texts to hold out for the report; default 0.1.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of initial values and order; default 1.")] = None,
    recall: Annotated[
        list[float] | None, typer.Option("--recall", help="Also report the threshold for this recall; may be repeated.")
    ] = None,
) -> None:
    """Train on labelled files (jsonl, jsonl.gz, parquet, csv, txt), write a folder, report on held-out texts."""
    from pydantic import ValidationError

    from ingot.data.steps.classify.config import TrainConfig
    from ingot.data.steps.classify.labelled import read_labelled, read_texts
    from ingot.data.steps.classify.report import as_lines
    from ingot.data.steps.classify.train import train_and_report

    if not labelled:
        refuse_given(context, ("label",), "without --labelled")
    pairs = [(found, "positive") for path in positive or [] for found in read_texts(path, text)]
    pairs += [(found, "negative") for path in negative or [] for found in read_texts(path, text)]
    pairs += [pair for path in labelled or [] for pair in read_labelled(path, text, label)]
    if not pairs:
        raise DataError("no texts to learn from", fix="give --positive and --negative files, or --labelled ones")
    given = {
        "dimension": dimension,
        "word_ngrams": word_ngrams,
        "min_characters": min_characters,
        "max_characters": max_characters,
        "buckets": buckets,
        "min_count": min_count,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "held_out": held_out,
        "seed": seed,
    }
    try:
        options = TrainConfig.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise RecipeError(first["msg"], place=f"--{name}", fix="see `ingot classifier train --help`") from None
    found = train_and_report(pairs, options, out, recall or (0.5, 0.9, 0.95))
    typer.echo(f"loss by epoch: {', '.join(f'{loss:.3f}' for loss in found['losses'])}")
    if "report" in found:
        typer.echo(f"on {found['report']['texts']:,} held-out texts:")
        for line in as_lines(found["report"]):
            typer.echo(f"  {line}")
    typer.echo(f"classifier: {out}\nuse it:\n  - {{step: classify, model: {shlex.quote(str(out))}, column: quality}}")


@classifier_app.command("score")
def score_command(
    model: Annotated[str, typer.Argument(help="Folder of a classifier, or a fastText file.", show_default=False)],
    files: Annotated[
        list[Path], typer.Argument(help="Texts: jsonl, jsonl.gz, parquet, csv or txt.", show_default=False)
    ],
    text: Annotated[str, typer.Option("--text", help="Column of the text.")] = "text",
) -> None:
    """Print the class probabilities of every text, one JSON object per line."""
    from ingot.data.steps.classify.labelled import read_texts
    from ingot.data.steps.classify.store import load_model
    from ingot.data.text.texts import Texts

    classifier = load_model(model)
    for path in files:
        for row in classifier.score(Texts.of(list(read_texts(path, text)))):
            scores = {name: round(float(score), 6) for name, score in zip(classifier.labels, row, strict=True)}
            typer.echo(json.dumps(scores, ensure_ascii=False))


@classifier_app.command("hash-terms")
def hash_terms_command(
    file: Annotated[Path, typer.Argument(help="File with one term per line.", show_default=False)],
) -> None:
    """Print the hash of every term, for a `hashed` list of the step `safety`."""
    from ingot.data.steps.safety import TermList, hashes_of

    for value in sorted(hashes_of(TermList(name="terms", file=str(file)))):
        typer.echo(f"{int(value):016x}")
