"""`ingot tokenizer`: train a tokenizer (a stage by itself, added by app.py), extend one, or compare several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ingot.cli.help import App, CommandGroup
from ingot.cli.show import print_json
from ingot.workspace.errors import DataError

SHOWN = {"bytes_per_token": "bytes/token", "fertility": "tokens/word", "continued_word_share": "words continued"}


class TokenizerGroup(CommandGroup):
    """`ingot tokenizer FILE` is `ingot tokenizer train FILE`, as `ingot KIND FILE` runs any other kind of stage."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if named or not args else ["train", *args])


tokenizer_app = App(
    name="tokenizer",
    help="Train a tokenizer, extend one, or compare several.",
    no_args_is_help=True,
    cls=TokenizerGroup,
)


@tokenizer_app.command("extend")
def extend_command(
    tokenizer: Annotated[Path, typer.Argument(metavar="TOKENIZER", help="Tokenizer folder.", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write.", show_default=False)],
    files: Annotated[
        list[Path],
        typer.Option(
            "--files", metavar="FILE", help="Texts: documents folder, Parquet, JSONL or plain text; may be repeated."
        ),
    ],
    size: Annotated[int, typer.Option("--size", metavar="N", min=1, help="Tokens in all, the old ones included.")],
    limit: Annotated[
        float, typer.Option("--megabytes", metavar="MB", min=0.001, help="Read at most this much text of each file.")
    ] = 64.0,
) -> None:
    """Learn more tokens on new text, behind the old ones, which keep their ids."""
    from ingot.tokens.compare import read_texts
    from ingot.tokens.extend import extend_tokenizer
    from ingot.tokens.tokenizer import Tokenizer

    old = Tokenizer.load(tokenizer)
    texts = [text for _, text in read_texts(files, None, int(limit * 1e6))]
    new = extend_tokenizer(old, texts, size)
    new.save(out)
    before, after = (sum(map(len, each.encode_batch(texts))) for each in (old, new))
    typer.echo(f"tokenizer: {out} ({old.vocabulary_size:,} + {new.vocabulary_size - old.vocabulary_size:,} tokens)")
    typer.echo(f"these texts: {before:,} tokens before, {after:,} now ({after / before - 1:+.1%})")
    typer.echo(f"next:\n  ingot model grow MODEL FOLDER --tokenizer {out}")


@tokenizer_app.command("compare")
def compare_command(
    tokenizers: Annotated[
        list[Path], typer.Argument(metavar="TOKENIZER", help="Tokenizer folders, tokenizer.json or .tiktoken files.")
    ],
    on: Annotated[
        list[Path],
        typer.Option(
            "--on", metavar="FILE", help="Texts: documents folder, Parquet, JSONL or plain text; may be repeated."
        ),
    ],
    by: Annotated[str | None, typer.Option("--by", metavar="COLUMN", help="Report each value of this column.")] = None,
    limit: Annotated[
        float, typer.Option("--megabytes", metavar="MB", min=0.001, help="Read at most this much text of each file.")
    ] = 16.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write all numbers to this JSON file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare tokenizers on texts: bytes per token, tokens per word, split words."""
    from ingot.tokens.compare import compare, read_texts
    from ingot.workspace.files import write_json

    texts = list(read_texts(on, by, int(limit * 1e6)))
    found = compare(tokenizers, texts)
    if not any(found.values()):
        raise DataError("the files have no text", fix="give files with text")
    if out is not None:
        write_json(out, found)
    if as_json:
        print_json(found)
        return
    from rich.console import Console
    from rich.table import Table

    groups = sorted(
        {group for by_group in found.values() for group in by_group}, key=lambda group: (group == "all", group)
    )
    table = Table("texts", "tokenizer", *SHOWN.values())
    for group in groups:
        for name, by_group in found.items():
            if group in by_group:
                numbers = [f"{by_group[group][key]:.3f}" for key in SHOWN]
                table.add_row(group, name, *numbers)
        table.add_section()
    Console().print(table)
