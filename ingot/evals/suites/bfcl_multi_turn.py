"""BFCL by execution: conversations in which functions change the state of services (Berkeley Function-Calling Leaderboard v4).

    multi_turn_base          200 conversations of a few turns
    multi_turn_miss_func     a function is missing at first, and offered in a later turn
    multi_turn_miss_param    a turn leaves out what a call needs, and the next one gives it
    multi_turn_long_context  services hold many irrelevant entries

Calls are run. A conversation is right if, after each turn, the services are in the state in which the reference calls leave them,
and the results so far contain those of the reference calls (bfcl/apis.py). `bfcl/multi_turn` is the mean of the categories, each
with the same weight.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from ingot.envs.episode import Episode
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rows import fingerprints, need
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Play
from ingot.evals.scores.scores import Metric, Sample, metric_of_units, of_equal_weight, spread
from ingot.evals.suites.bfcl.apis import MODULES, PACKAGE
from ingot.evals.suites.bfcl.conversation import STEPS, MultiTurnQuestion, ServiceConversation
from ingot.workspace.errors import CheckFailed, DataError, RecipeError
from ingot.workspace.packages import pip_install

Category = Literal["multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"]
RESULT_CHARACTERS = 1_000_000  # the leaderboard cuts nothing: long_context is about long results


class BfclMultiTurn(Suite):
    """Function calling in conversations (BFCL v4, multi-turn): calls are run, states and results compared."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)

    categories: tuple[Category, ...] = Field(
        ("multi_turn_base",), min_length=1, description="which categories, each in files of its name"
    )
    tools: Literal["prompt", "native"] = Field(
        "prompt",
        description="prompt: functions in the system prompt, calls as text; native: tools of the chat template and its calls",
    )
    files: dict[str, str] = Field(
        {},
        description="files to use instead of the published ones. Keys: CATEGORY for questions, answers_CATEGORY for reference "
        "calls, a service's name (math_api, …) for its functions",
    )
    temperature: float = Field(0.0, ge=0, description="sampling temperature; 0 is greedy")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of a step at most")

    def outside(self) -> dict[str, str]:
        """The files are part of what is measured."""
        return fingerprints(tuple(self.files.values()))

    def measure(self, subject: Subject) -> Measuring:
        """`bfcl/CATEGORY`, and their mean."""
        _need_services()
        questions = [each for category in self.categories for each in subject.some(self.questions(category, subject))]
        environment, native = ServiceConversation(), self.tools == "native"
        steps = (STEPS + 1) * max(len(each.turns) for each in questions)
        limits = Limits(self.max_new_tokens, subject.max_tokens, steps, tool_characters=RESULT_CHARACTERS)
        episodes: Sequence[Episode] = yield [
            Play(environment.conversation(each, native=native), environment, limits, self.temperature)
            for each in questions
        ]
        return Measured(multi_turn_metrics(episodes), [_sample(each) for each in spread(episodes)])

    def questions(self, category: str, subject: Subject) -> list[MultiTurnQuestion]:
        """The questions of a category."""
        rows = self._rows(category, _files(category), subject)
        if not rows:
            raise DataError(
                "there are no questions", place=f"suite bfcl_multi_turn, {category}", fix="give a file with rows"
            )
        answers = self._rows(f"answers_{category}", _files(category, "possible_answer"), subject)
        references = {row["id"]: need(row, "ground_truth", list, place) for place, row in answers}
        return [self._question(category, place, row, references, subject) for place, row in rows]

    def _question(
        self, category: str, place: str, row: dict[str, Any], references: Mapping[str, Any], subject: Subject
    ) -> MultiTurnQuestion:
        id, turns = need(row, "id", str, place), need(row, "question", list, place)
        reference = references.get(id, [])
        if len(reference) != len(turns):
            problem = f"the question {id} has {len(turns)} turns, and reference calls of {len(reference)}"
            raise DataError(problem, place=place, fix="give files that belong together")
        services = need(row, "involved_classes", list, place)
        if unknown := [each for each in services if each not in MODULES]:
            raise DataError(f"there is no service {unknown[0]}", place=place, fix=f"there are: {', '.join(MODULES)}")
        described = {
            each["name"]: each for service in services for _, each in self._functions(MODULES[service], subject)
        }
        missed = row.get("missed_function", {})
        if missed and self.tools == "native":
            raise RecipeError(
                "the tools of a chat template cannot change within a conversation",
                place=f"suite bfcl_multi_turn, {category}",
                fix="leave the category out, or write tools: prompt",
            )
        later = {
            int(turn): [described.pop(name) for name in names if name in described] for turn, names in missed.items()
        }
        state = {"id": id, "involved_classes": services, "initial_config": need(row, "initial_config", dict, place)}
        return MultiTurnQuestion(id, category, turns, list(described.values()), state, reference, later)

    def _functions(self, service: str, subject: Subject) -> list[tuple[str, dict[str, Any]]]:
        return self._rows(service, (f"bfcl/multi_turn_func_doc/{service}.json*",), subject)

    def _rows(self, given: str, patterns: Sequence[str], subject: Subject) -> list[tuple[str, dict[str, Any]]]:
        if given in self.files:
            return rows_of((self.files[given],), (), None, given=True, suite=self.short_name)
        return rows_of(patterns, (), subject.data, suite=self.short_name)


def multi_turn_metrics(episodes: Sequence[Episode]) -> list[Metric]:
    """The metrics of conversations. One whose services failed is left out."""
    by_category: dict[str, dict[str, float]] = {}
    for each in episodes:
        if not each.failed:
            question: MultiTurnQuestion = each.task.data["question"]
            by_category.setdefault(question.category, {})[question.id] = each.score.rewards["correct"]
    if not by_category:
        problem = f"the services failed in every conversation: {episodes[0].score.error}"
        raise CheckFailed(problem, fix="look at the installed bfcl-eval, and at the files of questions")
    metrics = [
        metric_of_units(f"bfcl/{category}", units, f"Function calls, {category}")
        for category, units in by_category.items()
    ]
    if len(by_category) > 1:
        units = of_equal_weight(by_category.values())
        metrics.append(metric_of_units("bfcl/multi_turn", units, "Function calls in conversations, mean of categories"))
    return metrics


def _need_services() -> None:
    missing = [name for name in (PACKAGE.partition(".")[0], "mpmath") if importlib.util.find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"the package {missing[0]}, which holds the services, is not installed",
            place="suite bfcl_multi_turn",
            # with its requirements come the clients of a dozen model providers, and an old numpy
            fix=f"{pip_install('mpmath')}; {pip_install('--no-deps', 'bfcl-eval==2026.3.23')}",
        )


def _files(category: str, folder: str = "") -> tuple[str, str]:
    """The patterns of a category's files, by the names here and by those of the leaderboard."""
    here = f"{folder}_{category}" if folder else category
    return f"bfcl/{here}.json*", f"bfcl/{f'{folder}/' if folder else ''}BFCL_v4_{category}.json"


def _sample(episode: Episode) -> Sample:
    question: MultiTurnQuestion = episode.task.data["question"]
    said = [f"{message.role}: {message.content or message.tool_calls}" for message in episode.messages]
    kind, asked, expected = f"bfcl/{question.category}", episode.task.question, str(question.reference)
    return Sample(question.id, kind, asked, "\n".join(said), expected, episode.score.correct)
