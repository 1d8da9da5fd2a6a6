"""BFCL: function calls compared by their syntax trees (Berkeley Function-Calling Leaderboard v4, Patil et al. 2025).

    simple, multiple              one call; of several functions in `multiple`
    parallel, parallel_multiple   several calls in any order
    irrelevance                   no function fits: right is whatever is no call
    live_…                        the same of questions that users asked

`bfcl/non_live` is the mean of the categories, each with the same weight; `bfcl/live` is the mean of the questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from ingot.envs.rows import fingerprints, need
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Conversation, Generation, Written
from ingot.evals.scores.scores import Metric, Sample, metric_of_units, of_equal_weight, spread
from ingot.evals.suites.bfcl.check import Function, right_calls
from ingot.evals.suites.bfcl.decode import DecodedCall, NoCall, decode
from ingot.evals.suites.bfcl.prompt import tool_name, tool_prompt, written_prompt
from ingot.workspace.errors import DataError

Category = Literal[
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
]
NON_LIVE: tuple[Category, ...] = ("simple_python", "multiple", "parallel", "parallel_multiple")
LIVE: tuple[Category, ...] = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
WITHOUT_KEY: tuple[Category, ...] = ("irrelevance", "live_irrelevance", "live_relevance")


class Bfcl(Suite):
    """Function calling (BFCL v4), single turn, compared as syntax trees."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)

    categories: tuple[Category, ...] = Field(
        (*NON_LIVE, "irrelevance"), min_length=1, description="which categories, each in files of its name"
    )
    tools: Literal["prompt", "native"] = Field(
        "prompt",
        description="prompt: functions in the system prompt, calls as text; native: tools of the chat template and its calls",
    )
    files: dict[str, str] = Field(
        {},
        description="by category a file of questions, and by answers_CATEGORY one of their keys, instead of the published ones",
    )
    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")

    def outside(self) -> dict[str, str]:
        """The files are part of what is measured."""
        return fingerprints(tuple(self.files.values()))

    def measure(self, subject: Subject) -> Measuring:
        """`bfcl/CATEGORY`, and the means of the leaderboard."""
        asked = [each for category in self.categories for each in subject.some(self.questions(category, subject))]
        answers = yield [Generation(self.prompt(each), max_new_tokens=self.max_new_tokens) for each in asked]
        right = {each.id: float(self.right(each, answer)) for each, answer in zip(asked, answers, strict=True)}
        by_category: dict[str, dict[str, float]] = {
            category: {each.id: right[each.id] for each in asked if each.category == category}
            for category in self.categories
        }
        metrics = [
            metric_of_units(f"bfcl/{category}", units, f"Function calls, {category}")
            for category, units in by_category.items()
        ]
        metrics += [*_same_weight(by_category), *_live(by_category)]
        kept = spread(list(zip(asked, answers, strict=True)))
        return Measured(metrics, [each.sample(answer, right[each.id]) for each, answer in kept])

    def questions(self, category: str, subject: Subject) -> list[FunctionQuestion]:
        """The questions of a category."""
        rows = self._rows(category, category, subject)
        keys: dict[str, Any] = {}
        if category not in WITHOUT_KEY:
            answers = self._rows(f"answers_{category}", f"possible_answer_{category}", subject)
            keys = {row["id"]: need(row, "ground_truth", list, place) for place, row in answers}
        found = []
        for place, row in rows:
            name = need(row, "id", str, place)
            if keys and name not in keys:
                raise DataError(
                    f"the question {name} has no answer key", place=place, fix="give files that belong together"
                )
            (messages,) = need(row, "question", list, place)
            found.append(
                FunctionQuestion(name, category, messages, need(row, "function", list, place), keys.get(name, []))
            )
        return found

    def _rows(self, given: str, name: str, subject: Subject) -> list[tuple[str, dict[str, Any]]]:
        if given in self.files:
            return rows_of((self.files[given],), (), None, given=True, suite="bfcl")
        patterns = (f"bfcl/{name}.json*", f"bfcl/BFCL_v4_{name.removeprefix('possible_answer_')}.json")
        if name.startswith("possible_answer_"):
            patterns = (patterns[0], f"bfcl/possible_answer/BFCL_v4_{name.removeprefix('possible_answer_')}.json")
        return rows_of(patterns, (), subject.data, suite="bfcl")

    def prompt(self, asked: FunctionQuestion) -> Conversation:
        """What the model reads."""
        make = tool_prompt if self.tools == "native" else written_prompt
        return make(asked.messages, asked.functions)

    def right(self, asked: FunctionQuestion, answer: Written) -> bool:
        """Whether an answer is right."""
        try:
            calls = native_calls(answer) if self.tools == "native" else decode(answer.text)
        except NoCall:
            calls = None
        if asked.category in WITHOUT_KEY:
            return bool(calls) == (asked.category == "live_relevance")
        functions, keys = asked.functions, asked.keys
        if self.tools == "native":
            functions = [{**each, "name": tool_name(each["name"])} for each in functions]
            keys = [{tool_name(name): values for name, values in key.items()} for key in keys]
        return calls is not None and right_calls(calls, keys, functions)


@dataclass(frozen=True)
class FunctionQuestion:
    """A question with its functions and its key."""

    id: str
    category: str
    messages: list[Mapping[str, str]]
    functions: list[Function]
    keys: list[Mapping[str, Any]]

    def sample(self, answer: Written, right: float) -> Sample:
        """What of it people read."""
        said = answer.text or str(answer.message.tool_calls if answer.message else "")
        asked = self.messages[-1]["content"]
        return Sample(self.id, f"bfcl/{self.category}", asked, said, str(self.keys), right == 1)


def native_calls(answer: Written) -> list[DecodedCall]:
    """The tool calls of a chat model's answer."""
    if answer.message is None or not answer.message.tool_calls:
        raise NoCall("no tool call")
    return [DecodedCall(each.name, each.arguments) for each in answer.message.tool_calls]


def _same_weight(by_category: Mapping[str, Mapping[str, float]]) -> list[Metric]:
    """The mean of the categories."""
    members = [by_category[name] for name in NON_LIVE if by_category.get(name)]
    if len(members) < 2:
        return []
    return [metric_of_units("bfcl/non_live", of_equal_weight(members), "Function calls, mean of categories")]


def _live(by_category: Mapping[str, Mapping[str, float]]) -> list[Metric]:
    units = {id: value for name in LIVE for id, value in by_category.get(name, {}).items()}
    return [metric_of_units("bfcl/live", units, "Function calls, live questions")] if units else []
