"""Writes conversations as the stage `sft` trains on them, token by token, with their mask: what `ingot sft --show` prints.

The stage itself makes them, in a temporary folder, so what is printed is what is learnt. On a terminal what the model learns to
write is green and special tokens are bold; elsewhere what is learnt stands in ⟦⟧.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain, count, groupby, islice
from pathlib import Path

from typer import style

from ingot.post.policy import chat_format
from ingot.post.sft import Sft
from ingot.post.sft_config import SftConfig
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder


def examples(config: SftConfig, inputs: Mapping[str, Path], folder: StageFolder, number: int) -> Iterator[str]:
    """The first conversations of the stage."""
    stage, colour = Sft(config, inputs, folder), sys.stdout.isatty()
    source, chat = stage.source(), chat_format(stage.model)
    drawn = chain.from_iterable(chain.from_iterable(source.draw(step)) for step in count())
    think = None if chat.syntax.think is None else chat.syntax.think[0]
    for index, sequence in enumerate(islice(drawn, number), 1):
        learnt = [token for token, weight in zip(sequence.tokens, sequence.streams["weight"], strict=True) if weight]
        mode = "thinking" if think is not None and think in chat.tokenizer.decode(learnt) else "no thinking"
        head = f"example {index}: {len(sequence.tokens):,} tokens, {len(learnt):,} learnt, {mode}"
        yield f"{style(head, bold=True) if colour else head}\n{marked(sequence, chat.tokenizer, colour)}"


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
            shown += style(tokenizer.decode(part), fg=colour_of, bold=is_special or None)
    return shown
