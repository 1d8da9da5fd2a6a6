"""Documents written by a served model, by a checkpoint, or by a program: one part of the `synthesize` stage.

It is here because a checkpoint answers through the sampling engine; everything else about it is in data/synthesize. The stage
itself, with its other part, is post/synthesis/stage.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.data.synthesize.config import DocumentsConfig
from ingot.data.synthesize.flow import synthesize
from ingot.data.synthesize.writer import Endpoint, Writer, WriterPrompt, WriterSettings
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.stage import StageFolder

SLOTS = 16


class CheckpointWriter:
    """Answers with a model of ours, in its own chat format, without thinking."""

    def __init__(self, path: Path) -> None:
        from ingot.inference.checksum import weights_checksum
        from ingot.inference.load import load_to_sample
        from ingot.tokens.chat import ChatFormat

        self.model = load_to_sample(path)
        if self.model.tokenizer is None:
            raise ArtifactError(
                "the checkpoint has no tokenizer", place=str(path), fix="use a checkpoint that can chat"
            )
        self.chat = ChatFormat(self.model.tokenizer)
        self.name = f"checkpoint {weights_checksum(self.model)}"

    def answers(self, prompts: Sequence[WriterPrompt], settings: WriterSettings) -> Iterator[tuple[int, str | None]]:
        """A prompt that fills the model's context gets no answer."""
        from ingot.inference.engine import Engine
        from ingot.inference.sampling import Sampling
        from ingot.tokens.chat import Message

        tokenizer, context = self.chat.tokenizer, self.model.config.context
        questions = [self.chat.prompt([Message("user", prompt.text)], thinking=False) for prompt in prompts]
        fitting = [number for number, question in enumerate(questions) if len(question) < context]
        yield from ((number, None) for number in range(len(prompts)) if number not in set(fitting))
        if not fitting:
            return
        longest = max(len(questions[number]) for number in fitting)
        length = min(context, longest + settings.max_tokens)
        engine = Engine(self.model, slots=min(SLOTS, len(fitting)), length=length)
        ends = tokenizer.ends
        samplings = [
            Sampling(
                min(settings.max_tokens, length - len(questions[number])),
                settings.temperature,
                settings.top_p,
                stop_tokens=ends,
                seed=prompts[number].seed,
            )
            for number in fitting
        ]
        completions = engine.complete([questions[number] for number in fitting], samplings)
        for number, completion in zip(fitting, completions, strict=True):
            yield number, tokenizer.decode((id for id in completion.tokens if id not in ends), skip_special=True)


def run(config: DocumentsConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Make documents; returns what each task came to."""
    writer: Writer | None = None
    if config.endpoint is not None:
        writer = Endpoint(config.endpoint)
    elif "checkpoint" in inputs:
        writer = CheckpointWriter(inputs["checkpoint"])
    elif config.needs_writer:
        raise no_writer()
    return {"tasks": synthesize(config, inputs["documents"], folder, writer)}


def no_writer() -> RecipeError:
    """The stage asks a model, and has none."""
    return RecipeError(
        "there is neither an endpoint nor a checkpoint that could write",
        place="synthesize",
        fix="give `endpoint: {url, model}`, or `inputs: {checkpoint: STAGE or PATH}`",
    )
