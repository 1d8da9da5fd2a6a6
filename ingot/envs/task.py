"""A task: a question that can be checked, and the split that it belongs to.

Invariants: a task belongs to exactly one split. A generated one is decided by a hash of its fact: what is asked, without its
wording and, where that does not matter, without its order (37 + 48, "add 48 and 37" and their sum asked for directly are one
fact). So what is held out is held out in every wording, whatever the seed, the kind or the difficulty; a row of a file belongs
to the split of its file. The same (seed, count, split) gives the same tasks on every machine; a task's id is a hash of its
question, so that two checkpoints are compared on the same tasks by id.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ingot.envs.tools.tool import Tool, make_tool
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

Split = Literal["train", "test"]
TEST_SHARE = 5  # one fact in five is a test fact
WORDS = re.compile(r"\w+(?:[.,]\w+)*|(?<!\S)[.](?!\S)|[^\w\s.,;:?!\"`]")  # 3.5, a lone dot (an empty cell), x + y
PATIENCE = 1000  # draws without a new question after which the questions of a kind count as used up


@dataclass(frozen=True)
class Task:
    """One question. `messages` is the prompt, `answer` the reference (if one text is right), `tools` what it may use.

    `asked` is what the question asks, without its wording, as its environment keeps it for `solution`; `data` is what else the
    environment wants to remember, such as a row of a file.
    """

    id: str
    kind: str
    messages: tuple[Message, ...]
    answer: str = ""
    tools: tuple[Tool, ...] = ()
    thinking: bool = True
    split: Split = "train"
    asked: tuple[Any, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.answer, str):
            raise DataError(
                f"the answer is {self.answer!r} of type {type(self.answer).__name__}, and what a model writes is text",
                place=f"task kind {self.kind}, question {self.question[:80]!r}",
                fix=f"give the answer as text: str({self.answer!r})",
            )

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """What the model reads about its tools."""
        return [dict(tool.schema) for tool in self.tools]

    @property
    def question(self) -> str:
        """The text of the last user message."""
        return self.messages[-1].content

    @property
    def level(self) -> str:
        """Tasks that are about equally hard: its kind, and the level if its environment says one (`data={"level": 3}`)."""
        return f"{self.kind}/{self.data['level']}" if "level" in self.data else self.kind


def plain(text: str) -> str:
    """Its words and signs: the same for a question with other capitals, blanks and marks."""
    return " ".join(WORDS.findall(text.casefold().replace("'", "")))


def plain_prompt(task: Task) -> str:
    """The words and signs of all that is said before the answer."""
    return plain("\n".join(message.content for message in task.messages))


def without_held_out(train: Sequence[Task], test: Sequence[Task]) -> list[Task]:
    """The train tasks that ask nothing that a test task asks."""
    held_out = {plain_prompt(task) for task in test}
    return [task for task in train if plain_prompt(task) not in held_out]


def fact_split(fact: str) -> Split:
    """The split a fact belongs to: a function of its text only."""
    return "test" if int(_digest(fact)[:8], 16) % TEST_SHARE == 0 else "train"


def make_task(
    kind: str,
    question: str | Sequence[Message],
    answer: str = "",
    *,
    fact: str | None = None,
    split: Split | None = None,
    asked: tuple[Any, ...] = (),
    data: Mapping[str, Any] | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    thinking: bool = True,
) -> Task:
    """A task with its id and split filled in. `question` is the user's, or a whole prompt.

    A question of which there is one wording is its own fact. `split` is that of its file, if it comes from one.
    """
    messages = (Message("user", question),) if isinstance(question, str) else tuple(question)
    mode = "think" if thinking else "direct"
    text = question if isinstance(question, str) else "\n".join(f"{each.role}: {each.content}" for each in messages)
    return Task(
        id=f"{kind}-{_digest(f'{kind}/{mode}/{text}')[:12]}",
        kind=kind,
        messages=messages,
        answer=answer,
        tools=tuple(make_tool(tool) for tool in tools),
        thinking=thinking,
        split=split or fact_split(text if fact is None else fact),
        asked=asked,
        data=data or {},
    )


def draw_tasks(kind: str, draw: Callable[[random.Random], Task], seed: int, count: int, split: Split) -> list[Task]:
    """Draw tasks of one split until there are `count`.

    Questions are distinct while new ones turn up. When they are used up, train tasks repeat (several passes over a
    small world are fine), while test tasks are an error: a repeated test task would shrink the standard error for
    nothing. A world so small that the split has no question at all is an error, too.
    """
    rng = random.Random(f"{kind}/{split}/{seed}")
    tasks: list[Task] = []
    seen: set[str] = set()
    misses = others = 0
    while len(tasks) < count:
        task = draw(rng)
        if task.split != split:
            others += 1
            if not tasks and others == PATIENCE:
                raise DataError(
                    f"none of {PATIENCE} drawn questions is a {split} question",
                    place=f"task kind {kind}",
                    fix="widen the difficulty of this kind: it has very few questions",
                )
            continue
        if task.id in seen and misses < PATIENCE:
            misses += 1
            continue
        if task.id in seen and split == "test":
            raise DataError(
                f"asked for {count} distinct test tasks, but there are only about {len(seen)} questions",
                place=f"task kind {kind}",
                fix="ask for fewer tasks or widen the difficulty of this kind",
            )
        if misses < PATIENCE:
            misses = 0
        seen.add(task.id)
        tasks.append(task)
    return tasks


def choose_rows(kind: str, rows: Sequence[Task], seed: int, count: int, split: Split) -> list[Task]:
    """`count` of the tasks of a file, in an order that the seed decides; train tasks may come in several passes."""
    if not rows:
        raise DataError(f"no files have {split} tasks", place=f"task kind {kind}", fix=f"give its {split} files")
    if split == "test" and count > len(rows):
        raise DataError(
            f"asked for {count} test tasks, but the files have {len(rows)}",
            place=f"task kind {kind}",
            fix=f"ask for at most {len(rows)}",
        )
    tasks: list[Task] = []
    number = 0
    while len(tasks) < count:
        order = list(rows)
        random.Random(f"rows/{kind}/{split}/{seed}/{number}").shuffle(order)
        tasks += order[: count - len(tasks)]
        number += 1
    return tasks


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
