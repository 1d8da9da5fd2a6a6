"""Tasks of the LM evaluation harness (lm-eval): its rows, prompts and scores, with answers from our engine.

The harness makes `Instance`s of a task: texts with continuations, or texts to go on with. They become requests here, the answers
go back into the instances, and the task's own filters and metrics score them, as in the harness's `evaluate`. For chat models
the harness wants a chat template as a function from messages to text; ours writes them as JSON, which becomes a conversation.

A metric whose aggregation is no mean (perplexity, F1, BLEU …) gets units by the jackknife: with T_i the metric without row i,
unit i = T + (n - 1) (mean of all T_i - T_i). Their mean is T, their standard error that of the jackknife.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ingot.evals.bases.few_shot import HARNESS_SEED
from ingot.evals.bases.identity import digest, unique
from ingot.evals.engine.request import Conversation, Generation, Likelihood, Likely, Passage, Question, Request, Written
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError, RecipeError, cannot_import
from ingot.workspace.nearest import suggestion
from ingot.workspace.packages import install_extra

SEED = 0  # of the harness, for Python's generator; few-shot sampling, numpy and torch have another
JACKKNIFE_GROUPS = 100  # aggregations are called once for each
DEFAULT_MAX_TOKENS = 256
NO_FILTER = "none"
INCLUDES = 10  # task files that include one another


@dataclass
class Loaded:
    """Tasks of the harness, and the groups that average them: name of a metric -> whether rows weigh alike."""

    tasks: dict[str, Any]
    groups: dict[str, tuple[list[str], dict[str, bool]]] = field(default_factory=dict)


def load_tasks(name: str, include_path: str | None, shots: int | None) -> Loaded:
    """A task, group or tag of the harness by its name."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise RecipeError(cannot_import("lm-eval", error, "lm_eval"), fix=install_extra("evals")) from error
    file = task_file(name, include_path)
    with harness_seeds():
        try:
            if file is not None:
                loaded = TaskManager(include_defaults=False).load([str(file)])
            else:  # a group, a tag, or a mistake: the harness reads its twelve thousand files, for half a minute
                manager = TaskManager(include_path=include_path)
                if name not in manager.all_tasks:
                    raise RecipeError(f"lm-eval has no task {name}", fix=suggestion(name, manager.all_tasks, "tasks"))
                loaded = manager.load([name])
        except (OSError, ValueError) as error:
            raise DataError(
                f"the rows of the task cannot be loaded: {error}",
                place=f"lm_eval:{name}",
                fix="load its data set once where there is a network, or give a task file with local rows: include_path",
            ) from error
    for task_name, task in loaded["tasks"].items():
        _check(task_name, task)
        default = task.get_config("num_fewshot")
        if (shots is not None and default != 0) or default is None:  # the harness: a task's own 0 stays
            task.set_config(key="num_fewshot", value=shots or 0)
        task.set_fewshot_seed(seed=HARNESS_SEED)
    groups = {
        name: ([task.task_name for task in group.get_all_tasks()], _averaged(group))
        for name, group in loaded["groups"].items()
    }
    return Loaded(loaded["tasks"], groups)


def task_file(name: str, include_path: str | None) -> Path | None:
    """Find the file of a task; one in a folder of one's own comes first. The harness is not imported, which takes seconds."""
    harness = find_spec("lm_eval")
    folders = [Path(include_path)] if include_path else []
    folders += [Path(each) / "tasks" for each in (harness and harness.submodule_search_locations) or ()]
    line = re.compile(rf"^task:[ \t]*(['\"]?){re.escape(name)}\1[ \t]*$", re.MULTILINE)
    for folder in folders:
        for file in sorted(folder.rglob("*.yaml")):
            if line.search(file.read_text(encoding="utf-8")):
                return file
    return None


def output_type(file: Path) -> str | None:
    """Read from a task's file, or from those it includes, what the task asks for (loglikelihood_rolling: whole texts)."""
    for _ in range(INCLUDES):
        text = file.read_text(encoding="utf-8")
        if found := re.search(r"^output_type:[ \t]*['\"]?(\w+)", text, re.MULTILINE):
            return found[1]
        included = re.search(r"^include:[ \t]*['\"]?(.+?)['\"]?[ \t]*$", text, re.MULTILINE)
        if included is None or not (file.parent / included[1]).is_file():
            return None
        file = file.parent / included[1]
    return None


@contextlib.contextmanager
def harness_seeds() -> Iterator[None]:
    """Python's generator as the harness seeds it (GPQA's order of choices comes from it), and as it was afterwards."""
    before = random.getstate()
    random.seed(SEED)
    try:
        yield
    finally:
        random.setstate(before)


def _check(name: str, task: Any) -> None:
    if getattr(task, "UNSAFE_CODE", False):
        fix = "measure humaneval or mbpp: these suites run programs in the sandbox"
        raise RecipeError("the task runs what the model writes in this process", place=f"lm_eval:{name}", fix=fix)
    if getattr(task, "MULTIMODAL", False):
        raise RecipeError("the task shows pictures or sounds", place=f"lm_eval:{name}", fix="leave it out")


def _averaged(group: Any) -> dict[str, bool]:
    return {each.metric: bool(each.weight_by_size) for each in group.aggregate_metric_list or []}


def build(task: Any, limit: int | None, chat: bool, chosen: Sequence[int] | None = None) -> None:
    """Make the task's instances: of the first rows, or of those that are chosen, with the examples that they have among all."""
    template = {"chat_template": history_text, "tokenizer_name": "ingot"} if chat else {}
    most = limit if chosen is None else None
    task.build_all_requests(limit=most, apply_chat_template=chat, fewshot_as_multiturn=chat, **template)
    if chosen is not None:  # the harness's own `samples` would draw other worked examples for them
        wanted = set(chosen)
        task.instances[:] = [instance for instance in task.instances if instance.doc_id in wanted]


def history_text(history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
    """The chat template that the harness gets: messages as JSON; the last may be the beginning of the answer."""
    return json.dumps([dict(message) for message in history])


def requests_of(instance: Any, chat: bool) -> list[Request]:
    """What an instance asks, as often as it wants to be answered."""
    match instance.request_type:
        case "loglikelihood":
            context, continuation = instance.args
            return [Likelihood(_prompt(context, chat), continuation)] * instance.repeats
        case "loglikelihood_rolling":
            return [Passage(instance.args[0])] * instance.repeats
        case "generate_until":
            context, options = instance.args
            return [_generation(_prompt(context, chat), options, sample) for sample in range(instance.repeats)]
        case other:
            raise DataError(f"requests of type {other} are not known here", place=f"lm_eval:{instance.task_name}")


def _prompt(context: str, chat: bool) -> Question | Conversation:
    if not chat or not context:
        return Question(context, delimiter="")
    messages = [Message(each["role"], each["content"]) for each in json.loads(context)]
    start = messages.pop().content if messages[-1].role == "assistant" else ""
    return Conversation(tuple(messages), start=start)


def _generation(prompt: Question | Conversation, options: Mapping[str, Any], sample: int) -> Generation:
    until = options.get("until") or []
    sampled = bool(options.get("do_sample", options.get("temperature", 0.0)))
    return Generation(
        prompt,
        max_new_tokens=int(options.get("max_gen_toks", options.get("max_new_tokens", DEFAULT_MAX_TOKENS))),
        stop=(until,) if isinstance(until, str) else tuple(until),
        temperature=float(options.get("temperature", 1.0)) if sampled else 0.0,
        top_p=float(options.get("top_p", 1.0)),
        sample=sample,
    )


def response_of(answer: Likely | Written, kind: str) -> Any:
    """An answer as the harness's tasks expect it."""
    if isinstance(answer, Written):
        return answer.text
    return answer.logprob if kind == "loglikelihood_rolling" else (answer.logprob, answer.greedy)


@dataclass
class TaskScores:
    """A metric of a task, row by row."""

    metric: str
    values: dict[str, Any]  # by the row's id
    aggregate: Callable[[list[Any]], float]
    higher_is_better: bool
    plain: bool  # the aggregation is the mean of numbers

    @property
    def units(self) -> dict[str, float]:
        """Numbers whose mean is the metric."""
        if self.plain:
            return {name: float(value) for name, value in self.values.items()}
        return jackknife_units(self.values, self.aggregate)


def score(task: Any) -> list[TaskScores]:
    """Filter the answers that the instances hold, and score them row by row."""
    from lm_eval.api.metrics import mean

    task.apply_filters()
    instances: defaultdict[int, list[Any]] = defaultdict(list)
    for instance in task.instances:
        instances[instance.doc_id].append(instance)
    documents = [(number, document) for number, document in task.doc_iterator() if number in instances]
    ids = dict(
        zip((number for number, _ in documents), unique(digest(_words(doc)) for _, doc in documents), strict=True)
    )
    values: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for filter_name in task.instances[0].filtered_resps:
        for number, document in documents:
            answered = sorted(instances[number], key=lambda each: each.idx)
            found = task.process_results(document, [each.filtered_resps[filter_name] for each in answered])
            for metric, value in found.items():
                values[metric if filter_name == NO_FILTER else f"{metric}/{filter_name}"][ids[number]] = value
    scored = []
    for metric, rows in values.items():
        name = metric.partition("/")[0]
        aggregate = task.aggregation().get(name, mean)
        numbers = all(isinstance(value, int | float) for value in rows.values())
        plain = numbers and math.isclose(
            aggregate(list(rows.values())), math.fsum(rows.values()) / len(rows), abs_tol=1e-12
        )
        scored.append(TaskScores(metric, rows, aggregate, task.higher_is_better().get(name, True), plain))
    return scored


def _words(document: Any) -> str:
    return json.dumps(document, default=str, sort_keys=True)


def jackknife_units(values: Mapping[str, Any], aggregate: Callable[[list[Any]], float]) -> dict[str, float]:
    """Units of any aggregation; rows are left out one by one, or group by group where there are many."""
    names = list(values)
    count = min(len(names), JACKKNIFE_GROUPS)
    total = float(aggregate(list(values.values())))
    if count == 1:
        return {names[0]: total}
    labels = names if count == len(names) else [f"rows-{number}" for number in range(count)]
    left = [
        float(aggregate([values[name] for place, name in enumerate(names) if place % count != number]))
        for number in range(count)
    ]
    shift = (count - 1) * math.fsum(left) / count
    return {label: total + shift - (count - 1) * value for label, value in zip(labels, left, strict=True)}
