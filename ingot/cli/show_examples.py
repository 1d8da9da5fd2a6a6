"""`ingot sft --show`: prints conversations as the stage will train on them, token by token, with their mask.

The stage itself makes them, in a temporary folder, so what is printed is what is learnt. On a terminal what the model learns to
write is green and special tokens are bold; elsewhere what is learnt stands in ⟦⟧.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterator
from itertools import chain, count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ingot.post.sft import Sft
    from ingot.recipe.recipe import Recipe
    from ingot.tokens.batch import TokenSequence
    from ingot.tokens.tokenizer import Tokenizer


def show_examples(recipe: Recipe, names: Collection[str], runs: Path, number: int) -> None:
    """Print the first `number` conversations of each of these stages of kind sft."""
    from ingot.post.sft import Sft
    from ingot.post.sft_config import SftConfig
    from ingot.recipe.flow import check_inputs
    from ingot.recipe.folders import input_paths
    from ingot.recipe.work import list_work
    from ingot.workspace.progress import Progress
    from ingot.workspace.stage import StageFolder

    works = list_work(recipe, runs)
    check_inputs(works, set(names), set(names), recipe)
    folders = {work.stage.name: work.folder for work in works}
    for work in works:
        config = work.stage.config
        if work.stage.name in names and isinstance(config, SftConfig):
            with tempfile.TemporaryDirectory() as scratch:
                folder = StageFolder(Path(scratch), work.stage.seed, Progress())  # which says nothing
                stage = Sft(config, input_paths(work.stage.inputs, folders), folder)
                texts = list(_examples(stage, number))
            typer.echo("\n\n".join(texts))


def _examples(stage: Sft, number: int) -> Iterator[str]:
    from ingot.post.policy import chat_format

    source, chat = stage.source(), chat_format(stage.model)
    drawn = chain.from_iterable(chain.from_iterable(source.draw(step)) for step in count())
    think = None if chat.syntax.think is None else chat.syntax.think[0]
    for index, sequence in enumerate(islice(drawn, number), 1):
        learnt = [token for token, weight in zip(sequence.tokens, sequence.streams["weight"], strict=True) if weight]
        mode = "thinking" if think is not None and think in chat.tokenizer.decode(learnt) else "no thinking"
        size = f"{len(sequence.tokens):,} tokens, {len(learnt):,} learnt, {mode}"
        yield f"{_styled(f'example {index}: {size}', bold=True)}\n{marked(sequence, chat.tokenizer, sys.stdout.isatty())}"


def marked(sequence: TokenSequence, tokenizer: Tokenizer, colour: bool) -> str:
    """The text of a sequence; what is learnt is green, or stands in ⟦⟧."""
    special = frozenset(tokenizer.special.values())
    pairs = list(zip(sequence.tokens, (bool(weight) for weight in sequence.streams["weight"]), strict=True))
    shown = ""
    for learnt, run in groupby(pairs, key=lambda pair: pair[1]):
        tokens = [token for token, _ in run]
        if not colour:
            text = tokenizer.decode(tokens)
            shown += f"⟦{text}⟧" if learnt else text
            continue
        for is_special, part in groupby(tokens, key=special.__contains__):
            colour_of = "green" if learnt else "bright_black"
            shown += typer.style(tokenizer.decode(part), fg=colour_of, bold=is_special or None)
    return shown


def _styled(text: str, *, bold: bool) -> str:
    return typer.style(text, bold=bold) if sys.stdout.isatty() else text
