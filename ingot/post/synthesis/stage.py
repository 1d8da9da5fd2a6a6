"""The stage `synthesize`: documents from documents (inference/synthesize.py), conversations from environments (rejection.py).

    documents/       the given documents, followed by the new ones
    conversations/   one JSONL file for each environment, which a later `sft` stage takes as its input

What earned too little is in rejected_attempts-ENVIRONMENT.jsonl with its reason, and how often each task was solved in
pass_rates-ENVIRONMENT.jsonl (envs/pass_rates.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingot.data.synthesize.flow import write
from ingot.envs.pass_rates import earned, write_pass_rates
from ingot.envs.rollout.endpoint import EndpointPolicy
from ingot.envs.rollout.rollout import Drawing
from ingot.inference.engine import Engine
from ingot.inference.synthesize import CheckpointWriter, no_writer
from ingot.inference.synthesize import run as write_documents
from ingot.post.synthesis.config import EnvironmentConfig, SynthesizeConfig
from ingot.post.synthesis.rejection import AttemptWriter, KeptConversations, attempt, select
from ingot.tokens.chat import ChatFormat
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.files import atomic_folder, write_text
from ingot.workspace.stage import StageFolder

SLOTS = 64  # attempts that a checkpoint makes at the same time
BYTES = 200_000  # of a server's attempt: its tokens are not known here, so they are counted in bytes


def run(config: SynthesizeConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Make documents and conversations; returns what each task and environment came to."""
    summary: dict[str, Any] = {}
    documents = inputs.get("documents")
    if config.tasks:
        if documents is None:
            raise RecipeError(
                "there are no documents to make documents from",
                place="synthesize.tasks",
                fix="add a `curate` stage before it, or write inputs: {documents: PATH}",
            )
        summary |= write_documents(config, {**inputs, "documents": documents}, folder)
    else:
        write([], documents if config.keep_documents else None, folder.artifact("documents"))
    found = {each.environment.kind: _conversations(each, config, inputs, folder) for each in config.environments}
    if found and not any(kept.rows for kept in found.values()):
        refused = "; ".join(f"{name}: {kept.summary()['refused']}" for name, kept in found.items())
        raise DataError(
            f"not one attempt was kept: {refused}",
            place="synthesize.environments",
            fix="look at rejected_attempts-*.jsonl in the stage's folder; ask more often, easier tasks or a better writer",
        )
    with atomic_folder(folder.artifact("conversations")) as temporary:
        for name, kept in found.items():
            write_text(temporary / f"{name}.jsonl", _lines(kept.rows))
    if found:
        summary["environments"] = {name: kept.summary() for name, kept in found.items()}
    return summary


def _conversations(
    each: EnvironmentConfig, config: SynthesizeConfig, inputs: Mapping[str, Path], folder: StageFolder
) -> KeptConversations:
    drawing = Drawing(config.temperature, config.top_p, seed=folder.seed)
    with attempt_writer(each, config, inputs) as writer:
        episodes = attempt(each, writer, drawing, config.max_tokens, folder)
    kept = select(each, episodes, writer)
    name = each.environment.kind
    write_pass_rates(folder.path / f"pass_rates-{name}.jsonl", [(each.task, earned(each)) for each in episodes])
    write_text(folder.path / f"rejected_attempts-{name}.jsonl", _lines(kept.rejected))
    folder.progress.say(f"{name}: {len(kept.rows)} of {kept.attempts} attempts are kept")
    return kept


@contextmanager
def attempt_writer(
    each: EnvironmentConfig, config: SynthesizeConfig, inputs: Mapping[str, Path]
) -> Iterator[AttemptWriter]:
    """The endpoint, or the checkpoint that the stage is given."""
    if config.endpoint is not None:
        chat = ChatFormat(train_tokenizer(["a"], TokenizerConfig(vocabulary_size=272)))
        with EndpointPolicy(config.endpoint, chat) as policy:
            yield AttemptWriter(config.endpoint.model, policy, chat, BYTES)
    elif "checkpoint" in inputs:
        own = CheckpointWriter(inputs["checkpoint"])
        length = min(each.max_length, own.model.config.context)
        slots = min(SLOTS, each.count * each.samples)
        yield AttemptWriter(own.name, Engine(own.model, slots=slots, length=length), own.chat, length)
    else:
        raise no_writer()


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
