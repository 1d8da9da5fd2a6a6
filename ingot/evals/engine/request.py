"""What a suite asks of a model, and what it gets back.

    Likelihood       how likely is this continuation of this question?          -> Likely
    TokenLikelihood  the same of exact tokens, where a text cannot say it       -> Likely
    Passage          how likely is this whole text, window by window?           -> Likely
    Generation       write an answer                                            -> Written
    Play             play an episode of an environment (envs/)                  -> Episode

A suite says what it asks, not how: whether a question becomes plain text (base models) or a conversation (chat models) is
the subject's form (prompt.py), and where the answer comes from (an engine, a server, the memory of an earlier run) is the
answerer's business (answer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingot.tokens.chat import Message

if TYPE_CHECKING:
    from ingot.envs.environment import Environment
    from ingot.envs.rollout.episode_run import Limits
    from ingot.envs.task import Task
    from ingot.envs.tools.tool import Tool


@dataclass(frozen=True)
class Question:
    """A question with worked examples before it, in words that suit a base model and a chat model."""

    text: str
    shots: tuple[tuple[str, str], ...] = ()  # questions and their answers
    description: str = ""  # what stands before everything; the system message of a conversation
    start: str = ""  # how the answer begins: given to the model, not asked of it
    delimiter: str = " "  # between a question and its answer, in plain text
    between: str = "\n\n"  # between two worked examples, in plain text


@dataclass(frozen=True)
class Conversation:
    """A conversation that a chat model goes on with; a base model cannot be asked this."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()  # schemas of the tools on offer
    start: str = ""


@dataclass(frozen=True)
class PlainText:
    """A text that is gone on with as it stands, by a chat model, too."""

    text: str


Prompt = Question | Conversation | PlainText


@dataclass(frozen=True)
class Likelihood:
    """How likely is `continuation` as the answer? It is the bare answer: a delimiter is the question's."""

    prompt: Prompt
    continuation: str


@dataclass(frozen=True)
class TokenLikelihood:
    """How likely are these tokens after those?"""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


@dataclass(frozen=True)
class Passage:
    """How likely is a text from its first token to its last?"""

    text: str


@dataclass(frozen=True)
class Generation:
    """Write an answer. `sample` numbers the samples of one prompt: each has a seed of its own."""

    prompt: Prompt
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()  # besides the end of a turn or text, which always stops
    temperature: float = 0.0
    top_p: float = 1.0
    sample: int = 0


@dataclass(frozen=True, eq=False)
class Play:
    """Play an episode; a task that is asked for k times is sampled k times."""

    task: Task
    environment: Environment
    limits: Limits
    temperature: float = 0.0
    top_p: float = 1.0
    tools: Mapping[str, Tool] = field(default_factory=dict)


Request = Likelihood | TokenLikelihood | Passage | Generation | Play


@dataclass(frozen=True)
class Likely:
    """The log-probability of a continuation (the sum over its tokens, natural logarithm)."""

    logprob: float
    greedy: bool  # every token is the likeliest one at its place
    tokens: int


@dataclass(frozen=True)
class Written:
    """An answer. `text` is without its thinking and without what stopped it."""

    text: str
    thinking: str | None
    finish: str  # stop, length, deadline or error
    tokens: int
    message: Message | None = None  # of a chat model, with its tool calls and what is malformed in it


Requests = Sequence[Request]
Answers = Sequence[Any]  # in the order of the requests: Likely, Written or Episode, whichever each request gets


class Worked(list[Request]):
    """Requests whose answers are worked on in threads as they come: a suite is sent what `work` makes of each.

    `work` is given the number of the request and its answer. A slow grader so holds up neither the answers that are still
    sampled nor other suites. It must not use the model: the engine is not to be called by two threads.
    """

    def __init__(self, requests: Requests, work: Callable[[int, Any], Any], threads: int = 1) -> None:
        super().__init__(requests)
        self.work, self.threads = work, threads
