"""Any family of reasoning-gym (Stojanovski et al. 2025, arXiv 2505.24760) as a task kind.

    reasoning_gym: {family: gcd, settings: {min_value: 2, max_value: 24}}

Their item i comes from Random(seed + i), so data sets of neighbouring seeds are nearly the same; here every task is item 0 of its
own seed. What is asked is the text of the question, and by it a task is train or test. Their scorers pay parts of the reward
for parts of the answer, and floors for nothing; here the reward is 1 if their score is exactly 1, else 0, and

- an empty answer and a long one are wrong, and so is one on which the scorer raises or takes too long, unless it does so on the
  task's own answer too: then it is the scorer that fails, and the episode has no reward;
- where the scorer pays 1 to something else than the answer (EXACT), or to junk, the answer must be the text or the number;
- where the scorer evaluates the answer as Python, it may only have numbers, operators and known names (EXPRESSIONS), or
  nothing with which a list could call something (LISTS).

Scorers run in a child process with a deadline (verifiers/children.py), except where they are known to take no time: the default
of reasoning-gym gives 1 to the very answer and to nothing else, and those of a few families (QUICK) compare two short texts. RL
judges hundreds of answers a second, most of them wrong, and asking a child from another thread costs the sampling more than that.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks.countdown import reaches
from ingot.envs.verifiers.children import ENDED, TOO_SLOW, Children
from ingot.envs.verifiers.errors import NoVerdict, VerifierError
from ingot.envs.verifiers.math.answer_text import too_costly
from ingot.envs.verifiers.text.reply import final_content, format_ok, parse_number
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError, RecipeError, cannot_import
from ingot.workspace.nearest import suggestion
from ingot.workspace.packages import install_extra

EXACT = frozenset({"coin_flip", "game_of_life_halting"})
EXPRESSIONS = frozenset(
    {"countdown", "puzzle24", "simple_integration", "intermediate_integration", "polynomial_multiplication"}
)
LISTS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
QUICK = frozenset({"chain_sum", "products", "spell_backward"})  # read the answer only, as a number or in lower case
NAMES = frozenset({"sin", "cos", "tan", "exp", "log", "ln", "sqrt", "pi", "asin", "acos", "atan", "Abs"})
JUNK = "qzxv"
LENGTH_LIMIT = 10_000
SECONDS = 10.0  # of a processor
SEEDS = 2**31
TRIES = 20
CHILDREN = Children("reasoning_gym")


class ReasoningGym(Environment):
    """A family of reasoning-gym; its reward is 1 for an answer that scores fully there."""

    label: ClassVar[str] = "reasoning-gym"
    family: str = Field("gcd", description="name of a family of reasoning-gym: countdown, gcd, word_sorting, …")
    settings: dict[str, Any] = Field({}, description="options of the family, as reasoning-gym names them")
    _asked_last: tuple[Any, bool] = PrivateAttr(
        (None, False)
    )  # the task of which it was asked whether it takes anything

    @model_validator(mode="after")
    def _known(self) -> Self:
        if {"seed", "size"} & self.settings.keys():
            raise ValueError("seed and size are not settings of a family here: tasks come from the seed of the stage")
        return self

    @cached_property
    def _create(self) -> Any:
        """reasoning-gym's factory; imported here, because that takes seconds."""
        try:
            import reasoning_gym
            from reasoning_gym.factory import DATASETS
        except ImportError as error:
            raise RecipeError(
                cannot_import("reasoning-gym", error, "reasoning_gym"), fix=install_extra("envs")
            ) from error
        if self.family not in DATASETS:
            fix = suggestion(self.family, sorted(DATASETS), "families")
            raise RecipeError(f"reasoning-gym has no family {self.family}", fix=fix)
        return reasoning_gym.create_dataset

    def item(self, seed: int) -> dict[str, Any]:
        """Item 0 of a seed: question, answer and metadata."""
        try:
            if self._reseeds:
                return self._reseeded(seed)
            return dict(self._create(self.family, seed=seed, size=1, **self.settings)[0])
        except (AssertionError, TypeError, ValueError) as error:  # how their configurations refuse
            place = f"task kind {self.kind}, family {self.family}"
            raise RecipeError(
                f"its settings do not work: {error}", place=place, fix="see the family's options"
            ) from error

    @cached_property
    def _dataset(self) -> Any:
        """The family's data set. Making one may read a dictionary: 0.1 s for `spell_backward`, and every task has a seed."""
        return self._create(self.family, seed=0, size=1, **self.settings)

    @cached_property
    def _reseeds(self) -> bool:
        """Whether another seed makes of the same data set what a new one would have; of few families it does not."""
        return all(
            self._reseeded(seed) == dict(self._create(self.family, seed=seed, size=1, **self.settings)[0])
            for seed in (1, 12_345, SEEDS - 1)
        )

    def _reseeded(self, seed: int) -> dict[str, Any]:
        dataset = copy.copy(self._dataset)  # threads draw at the same time
        dataset.seed = seed
        return dict(dataset[0])

    def draw(self, rng: random.Random) -> Task:
        seed = rng.randrange(SEEDS)
        item = self.item(seed)
        answer = "" if item["answer"] is None else str(item["answer"])
        return self.ask(str(item["question"]), answer, asked=(seed,))

    def solution(self, task: Task) -> list[Message]:
        if not task.answer.strip():
            raise DataError(
                f"the family {self.family} has no answer of its own to this question, so there is nothing to imitate",
                place=f"task {task.id}",
                fix="use it for RL and evaluation only",
            )
        return [Message(role="assistant", content=task.answer, thinking="")]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """The answer to another question of the family, which is wrong here."""
        for _ in range(TRIES):
            other = str(self.item(rng.randrange(SEEDS))["answer"]).strip()
            with suppress(NoVerdict):
                if other and not self._correct(task, other):
                    return [Message(role="assistant", content=other, thinking="")]
        return [Message(role="assistant", content=JUNK, thinking="")]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        content = final_content(messages).strip()
        try:
            return self._scored(task, messages, self._correct(task, content))
        except NoVerdict as error:
            if fault := self._fault(task):
                problem = f"the scorer of {self.family} fails on the task's own answer too: {fault}"
                raise VerifierError(problem, place=f"task {task.id}", fix="leave the family out") from error
            kind = "answers_too_slow" if error.cause in (TOO_SLOW, ENDED) else "answers_unreadable"
            return replace(self._scored(task, messages, False), detail={kind: 1.0})

    def score_at_once(self, task: Task, messages: Sequence[Message]) -> Score | None:
        if type(self).score is not ReasoningGym.score or self.rewards():
            return super().score_at_once(task, messages)
        content = final_content(messages).strip()
        if self.family in QUICK:
            return self.score(task, messages)
        plain = self._plainly(task, content)
        return None if plain is None else self._scored(task, messages, plain)

    def _scored(self, task: Task, messages: Sequence[Message], correct: bool) -> Score:
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)

    def _plainly(self, task: Task, content: str) -> bool | None:
        """Whether an answer is right, where no scorer must be asked."""
        if not content or len(content) > LENGTH_LIMIT or not self._is_safe(content):
            return False
        if content == task.answer.strip():
            return True
        return False if self._wants_the_text else None

    @cached_property
    def _wants_the_text(self) -> bool:
        """Whether the scorer is the default one, whose score is the share of the answer in the text: 1 where nothing is added."""
        from reasoning_gym.dataset import ProceduralDataset

        return self.family not in EXACT and type(self._dataset).score_answer is ProceduralDataset.score_answer

    def _correct(self, task: Task, content: str) -> bool:
        plain = self._plainly(task, content)
        if plain is not None:
            return plain
        if self.family == "puzzle24":  # its scorer takes any four numbers, so that 6+6+6+6 would always be right
            return reaches(content, self.item(task.asked[0])["metadata"]["numbers"], 24)
        if self.family in EXACT or self._takes_anything(task):
            number = parse_number(content)
            return number is not None and number == parse_number(task.answer)
        return self._score(task, content) == 1.0

    def _takes_anything(self, task: Task) -> bool:
        """Whether its scorer gives full marks for nonsense. The answers to a task come together, so it is asked once for them."""
        if self._asked_last[0] != task.asked[0]:
            full = False
            with suppress(NoVerdict):  # it raises on nonsense
                full = self._score(task, JUNK) == 1.0
            self._asked_last = (task.asked[0], full)
        return self._asked_last[1]

    def _is_safe(self, content: str) -> bool:
        """Whether the scorer, which may evaluate the answer as Python, can do no more than to compute it."""
        if self.family in EXPRESSIONS:
            return is_calculation(content)
        return self.family not in LISTS or not re.search(r"[(){}=:@\\]", content)

    def _score(self, task: Task, content: str) -> float:
        """Their score; NoVerdict if there is none."""
        if self.family in QUICK:
            return float(self._dataset.score_answer(content, {"answer": task.answer}))
        family = {"family": self.family, "settings": self.settings, "reseeds": self._reseeds}
        answer = CHILDREN.ask(family | {"seed": task.asked[0], "answer": content}, SECONDS)
        if "error" in answer:
            raise NoVerdict(answer["error"], place=f"task {task.id}")
        return float(answer["score"])

    def _fault(self, task: Task) -> str:
        """Why the task's own answer cannot be scored; "" if it can."""
        try:
            self._score(task, task.answer)
        except NoVerdict as error:
            return error.cause
        return ""


def is_calculation(text: str) -> bool:
    """Whether a text has only numbers that can be held, operators, single letters and names of functions."""
    if not re.fullmatch(r"[\w\s+\-*/^().,|]*", text, re.ASCII) or too_costly(text):
        return False
    return all(len(name) == 1 or name in NAMES for name in re.findall(r"[A-Za-z_]\w*", text))
