"""Tasks of Inspect (inspect-ai): its samples, solvers and scorers, with answers from our engine.

A solver of Inspect is a coroutine that changes a sample's state and awaits `generate` where it wants the model. Here `generate`
awaits a `Generation`, which hands the request to the code that drives the coroutine; all samples are driven side by side, so
that the requests of all of them are answered together. Any solver that waits for nothing but the model runs: `generate`,
`system_message`, `prompt_template`, `chain_of_thought`, `multiple_choice` and chains of these. What waits for something else
(tools, a sandbox, a grader model) is an error that says so.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.evals.bases.identity import unique
from ingot.evals.engine.request import Conversation, Generation, Question, Written
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError, RecipeError, cannot_import
from ingot.workspace.outside import load_outside
from ingot.workspace.packages import install_extra

ROLES = ("system", "user", "assistant")
NAME = "ingot"  # of the model, in Inspect's records
REFUSED = ("setup", "sandbox", "model", "approval")  # parts of a task that need Inspect's own runner


class Asking:
    """What a solver awaits: the driver is given the request, and sends the answer."""

    def __init__(self, request: Generation) -> None:
        self.request = request

    def __await__(self) -> Generator[Generation, Written, Written]:
        return (yield self.request)


@dataclass(frozen=True)
class Options:
    """How answers are asked for, where neither the solver nor the task says it."""

    max_new_tokens: int
    temperature: float
    chat: bool


def load_task(spec: str, arguments: Mapping[str, Any]) -> Any:
    """The task that a function of a file or package makes: `file.py:name` or `package.module:name`."""
    try:
        from inspect_ai import Task
    except ImportError as error:
        raise RecipeError(cannot_import("Inspect", error, "inspect_ai"), fix=install_extra("inspect")) from error
    task = load_outside(spec)(**arguments)
    if not isinstance(task, Task):
        raise RecipeError(f"{spec} makes no Task of Inspect", fix="name a function that is marked with @task")
    if needed := [name for name in REFUSED if getattr(task, name, None) is not None]:
        fix = "measure it with Inspect itself, against `ingot serve`"
        raise RecipeError(f"the task has its own {needed[0]}, which is not done here", place=spec, fix=fix)
    if not task.scorer:
        raise RecipeError("the task has no scorer", place=spec, fix="give the Task a scorer")
    if any(name.startswith("model_graded") for name in scorer_names(task)):
        fix = "give it a scorer that asks no model, or measure it with Inspect itself, against `ingot serve`"
        raise RecipeError("a model grades its answers, which is not done here", place=spec, fix=fix)
    return task


def solve(
    task: Any, sample: Any, number: int, epoch: int, options: Options
) -> Coroutine[Generation, Written, tuple[Any, list[Any]]]:
    """The work on one sample: its solvers, then its scorers. It awaits the model's answers, and returns state and scores."""
    from inspect_ai.model import ChatMessageUser, GenerateConfig, ModelName, ModelOutput
    from inspect_ai.scorer import Target
    from inspect_ai.solver import TaskState
    from inspect_ai.solver._chain import unroll

    if sample.sandbox is not None or sample.files or sample.setup:
        raise RecipeError("a sample has files or a sandbox, which is not done here", place=f"sample {number}")
    given = [ChatMessageUser(content=sample.input)] if isinstance(sample.input, str) else list(sample.input)
    state = TaskState(
        ModelName(f"{NAME}/{NAME}"),
        sample.id if sample.id is not None else number + 1,
        epoch,
        sample.input,
        [message.model_copy(deep=True) for message in given],  # solvers change them
        Target(sample.target),
        sample.choices,
        metadata=dict(sample.metadata or {}),
    )

    async def generate(state: Any, tool_calls: str = "loop", cache: Any = None, **more: Any) -> Any:
        if state.tools:
            raise RecipeError("the solver offers tools, which is not done here", fix="write it as an environment")
        config = task.config.merge(GenerateConfig(**more))
        written = await Asking(_generation(state.messages, config, epoch - 1, options))
        state.output = ModelOutput.from_content(NAME, written.text)
        state.messages.append(state.output.message)
        return state

    async def work() -> tuple[Any, list[Any]]:
        solved = state
        for solver in unroll(task.solver):
            solved = await solver(solved, generate)
            if solved.completed:
                break
        return solved, [await scorer(solved, solved.target) for scorer in task.scorer]

    return work()


def _generation(messages: Sequence[Any], config: Any, sample: int, options: Options) -> Generation:
    """What the model is asked: a conversation, or for a base model its texts one after the other."""
    said = [_message(each) for each in messages]
    prompt = Conversation(tuple(said)) if options.chat else Question("\n\n".join(each.content for each in said))
    return Generation(
        prompt,
        max_new_tokens=options.max_new_tokens if config.max_tokens is None else config.max_tokens,
        stop=tuple(config.stop_seqs or ()),
        temperature=options.temperature if config.temperature is None else config.temperature,
        top_p=1.0 if config.top_p is None else config.top_p,
        sample=sample,
    )


def _message(message: Any) -> Message:
    if message.role not in ROLES or not (isinstance(message.content, str) or _only_text(message.content)):
        problem = f"a {message.role} message that is not text alone"
        raise DataError(problem, place="Inspect's sample", fix="leave samples with pictures, files and tool calls out")
    return Message(message.role, message.text)


def _only_text(content: Sequence[Any]) -> bool:
    return all(part.type == "text" for part in content)


def drive(
    works: Sequence[Coroutine[Any, Any, Any]], place: str
) -> Generator[list[Generation], Sequence[Written], list[Any]]:
    """Drive coroutines side by side: yields what all of them ask, is sent the answers, and returns their results."""
    results: list[Any] = [None] * len(works)
    answers: dict[int, Written | None] = dict.fromkeys(range(len(works)))
    try:
        while answers:
            asked: dict[int, Generation] = {}
            for number, answer in answers.items():
                try:
                    request = works[number].send(answer)
                except StopIteration as end:
                    results[number] = end.value
                    continue
                if not isinstance(request, Generation):
                    raise RecipeError(
                        f"its solver or scorer waits for something that is not the model: {request!r}",
                        place=place,
                        fix="measure it with Inspect itself, against `ingot serve`",
                    )
                asked[number] = request
            answers = dict(zip(asked, (yield list(asked.values())), strict=True)) if asked else {}
    finally:
        for work in works:
            work.close()
    return results


def scorer_names(task: Any) -> list[str]:
    """A short name of each scorer, different ones for different scorers."""
    from inspect_ai._util.registry import registry_info, registry_unqualified_name

    return unique(registry_unqualified_name(registry_info(each).name) for each in task.scorer)
