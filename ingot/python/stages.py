"""The stages as functions. Each takes what its recipe takes, as keywords, and gives a `Result`.

    result = sft("smollm2", rows, steps=100, lora={"rank": 16})
    result = rl(result, prompts, rewards=[brevity], steps=20)

A model is a path (a checkpoint, a Hugging Face folder, a GGUF file), a run, or a result. Data are files, or rows in memory
(rows.py). Besides the options of its stage each function takes `name` or `folder` of the run, `seed`, `dry_run` and `progress`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from ingot.data.read.config import SOURCES
from ingot.envs.environment import TASKS, Environment
from ingot.evals.bases.suites import entry_of
from ingot.python.call import StageCall
from ingot.python.result import Result
from ingot.python.rows import Rows, as_files
from ingot.recipe.flow import RunResult
from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import nearest
from ingot.workspace.outside import is_outside

Artifact: TypeAlias = str | Path | Result | RunResult
"""Something that a stage has made: a path, a run, or the result of a call."""
PROMPTS = "prompts"  # the task kind of prompts of one's own


def curate(data: Rows | Mapping[str, Any] | None = None, steps: list[Any] | None = None, **options: Any) -> Result:
    """Clean raw text: files (patterns too), rows with a `text`, or sources as a recipe has them; `steps` in their order."""
    call = _call("curate", options)
    if data is not None:
        call.set("sources", _sources(call, data))
    if steps is not None:
        call.set("steps", steps)
    return call.run()


def tokenizer(documents: Artifact, **options: Any) -> Result:
    """Train a tokenizer on documents: the result of `curate`."""
    return _call("tokenizer", options, documents=documents).run()


def tokenize(documents: Artifact, tokenizer: Artifact, **options: Any) -> Result:
    """Write documents as token shards."""
    return _call("tokenize", options, documents=documents, tokenizer=tokenizer).run()


def pretrain(shards: Artifact, tokenizer: Artifact, **options: Any) -> Result:
    """Train a model on token shards, from scratch (`model={…}`) or from a `checkpoint`."""
    return _call("pretrain", options, shards=shards, tokenizer=tokenizer).run()


def sft(model: Artifact, data: Rows | None = None, **options: Any) -> Result:
    """Fine-tune a model on conversations: rows of {"messages": […]} or of any other form that an `sft` stage reads."""
    call = _call("sft", options, checkpoint=model)
    if data is not None:
        call.set("files", as_files(data, call.rows, '{"messages": [{"role": "user", "content": "…"}, …]}'))
    return call.run()


def prefer(model: Artifact, pairs: Rows | None = None, **options: Any) -> Result:
    """Train a model on pairs of answers (DPO and its kin): rows of {"prompt", "chosen", "rejected"}, or its own answers."""
    call = _call("prefer", options, checkpoint=model)
    if isinstance(pairs, Mapping):
        call.set("pairs", pairs)
    elif pairs is not None:
        call.set("pairs", {"files": as_files(pairs, call.rows, '{"prompt": …, "chosen": …, "rejected": …}')})
    return call.run()


def reward(model: Artifact, pairs: Rows, **options: Any) -> Result:
    """Train a reward model on pairs of answers, or on answers with scores."""
    call = _call("reward", options, checkpoint=model)
    call.set("files", as_files(pairs, call.rows, '{"prompt": …, "chosen": …, "rejected": …}'))
    return call.run()


def rl(model: Artifact, tasks: Any = None, **options: Any) -> Result:
    """Train a model by reinforcement learning on tasks, or on prompts with `rewards=[function, …]`.

    `tasks` are the name of a task kind, an Environment class, a mapping of these to weights, or prompts: texts, or rows of
    {"prompt", "answer"}, in memory or in files.
    """
    call = _call("rl", options, checkpoint=model)
    if tasks is not None:
        call.set("tasks", _tasks(call, tasks))
    return call.run()


def distill(
    model: Artifact, teacher: Artifact | Mapping[str, Artifact] | None, tasks: Any = None, **options: Any
) -> Result:
    """Train a model on its own samples, graded by a teacher; `tasks` as in `rl`."""
    call = _call("distill", options, checkpoint=model, teacher=teacher)
    if tasks is not None:
        call.set("tasks", _tasks(call, tasks))
    return call.run()


def merge(models: list[Artifact] | Mapping[str, Artifact], **options: Any) -> Result:
    """Merge models of one architecture; a mapping names them, as `base` needs."""
    return _call("merge", options, checkpoints=models).run()


def evaluate(model: Artifact | None, suites: Any = None, **options: Any) -> Result:
    """Measure a model (None: that of an `endpoint`) with suites: names, `file.yaml`, classes, or mappings with their options."""
    call = _call("evaluate", options, "eval", checkpoint=model)
    if suites is not None:
        listed = suites if isinstance(suites, list | tuple) else [suites]
        call.set("suites", [entry_of(os.fspath(each)) if isinstance(each, str | Path) else each for each in listed])
    return call.run()


def fit(model: Artifact, batches: Any, loss: Callable[..., Any] | str, **options: Any) -> Result:
    """Train a model by a loss of your own: `loss(tokens)` gives a number for each token of a batch.

    `batches` is a function `batches(step)` that gives the sequences of a step, or such batches in their order, or a file of them.
    """
    call = _call("fit", options, checkpoint=model, kind="ingot.post.own_loss:OwnLoss")
    if not callable(batches) and not isinstance(batches, str | Path):
        if isinstance(batches, Iterable):
            lines = ({"sequences": each} if isinstance(each, list | tuple) else each for each in batches)
            batches = islice(lines, options.get("steps"))
        (batches,) = as_files(batches, call.rows, '[{"text": "…"}, …]')
    call.set("batches", batches)
    call.set("loss", loss)
    return call.run()


def _call(
    function: str, options: dict[str, Any], stage: str | None = None, kind: str | None = None, **inputs: Any
) -> StageCall:
    """A call with its inputs, which stand before its options."""
    name = stage or function
    if twice := [role for role in inputs if role in options]:
        raise RecipeError(f"{twice[0]} is given twice", place=f"ingot.{function}", fix=f"leave {twice[0]}= out")
    return StageCall(f"ingot.{function}", name, kind or name, {**inputs, **options})


def _sources(call: StageCall, data: Any) -> list[Any]:
    """Files, rows, or sources as a recipe has them."""
    listed = [data] if isinstance(data, Mapping) else data
    if isinstance(listed, list | tuple) and all(isinstance(each, Mapping) and {*each} & {*SOURCES} for each in listed):
        return list(listed)
    return [{"files": as_files(data, call.rows, '{"text": "…"}')}]


def _tasks(call: StageCall, tasks: Any) -> Any:
    """The option `tasks` that is meant."""
    if isinstance(tasks, Mapping):
        return tasks if "weights" in tasks else {"weights": dict(tasks)}
    if isinstance(tasks, type) and issubclass(tasks, Environment):
        return {"weights": {tasks: 1.0}}
    if isinstance(tasks, Environment | type):
        fix = "give a class of Environment; with options: {'weights': {Class: 1.0}, Class: {'option': value}}"
        raise RecipeError(f"{tasks!r:.80} is no task kind", place=f"{call.function}: tasks", fix=fix)
    if isinstance(tasks, str) and (is_outside(tasks) or tasks in TASKS.names()):
        return {"weights": {tasks: 1.0}}
    if isinstance(tasks, list | tuple) and tasks and all(isinstance(each, type) for each in tasks):
        return {"weights": dict.fromkeys(tasks, 1.0)}
    if isinstance(tasks, str) and not Path(tasks).exists() and not tasks.startswith("hf:"):
        kind = nearest(tasks, TASKS.names())
        fix = "give a list of prompts, a file of them, a task kind (`ingot env list`), or file.py:Name"
        fix = fix if kind is None else f"did you mean {kind}? Else {fix}"
        raise RecipeError(f"{tasks!r:.80} is neither a task kind nor a file", place=f"{call.function}: tasks", fix=fix)
    files = as_files(tasks, call.rows, '{"prompt": "…", "answer": "…"}', column="prompt")
    return {"weights": {PROMPTS: 1.0}, PROMPTS: {"train": files}}
