"""What people type into a chat with the quickstart's model: small talk and numbers, after other questions or first."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.task import Task, plain
from ingot.envs.tasks.arithmetic import Arithmetic
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tasks.small_talk import REPLIES, SmallTalk, greeting
from ingot.envs.tasks.strings import Strings
from ingot.envs.tools.calculator import CALCULATOR
from ingot.tokens.chat import Message

TYPED: tuple[Callable[[str], str], ...] = (
    str,
    str.lower,
    lambda text: text.lower().rstrip("?.!"),
    lambda text: text.rstrip("?.!"),
    lambda text: text.lower().rstrip("?.!") + "!",
)

KINDS: dict[str, Environment] = {
    "arithmetic": Arithmetic(digits_min=1, short=0.12, typed=True),
    "strings": Strings(
        operations=("reverse", "reverse", "last"), letters_min=3, letters_max=5, spelled=False, typed=True
    ),
    "calculator": Calculator(operators=("+", "-", "*"), digits_min=1, digits_max=3, head_digits=2, typed=True),
    "small_talk": SmallTalk(direct=0),
}

OTHER = {  # in these words no training conversation asks
    "Hello! How can I help?": "Hello my friend | Hi friend! | Hey bot | Good morning to you. | Well, hello! | Oh hi",
    "I am fine, thank you.": "How are you feeling? | How do you feel? | How are you this morning? | Are you doing well? | "
    "You okay?",
    "I am a very small language model.": "Who is this? | What is your name, please? | Are you an AI? | Tell me who you are. | "
    "What should I call you?",
    "I add numbers, reverse words and use a calculator.": "What are you able to do? | What else can you do? | I need help. | "
    "What do you do? | Tell me what you can do.",
    "You are welcome.": "Thanks for your help! | Thank you again. | Very good, thanks | Awesome, thank you! | Great job!",
    "Goodbye!": "Bye for now! | See you soon. | Bye, take care! | Thanks, goodbye! | I must go. | Good night, sleep well.",
}


class Chat(Environment):
    """A question with the calculator on offer, as `ingot chat` offers it, after up to `earlier` questions and their answers."""

    asked: Literal["small_talk", "calculator", "arithmetic", "strings"] = Field(
        "small_talk", description="the last question"
    )
    unseen: bool = Field(False, description="small talk in wordings that are in no training conversation")
    earlier: int = Field(3, ge=0, description="most questions before it")

    def draw(self, rng: random.Random) -> Task:
        """Sums, words and calls are held out by their fact, as in the quickstart. Small talk is learnt by heart there: only what
        is `unseen` is held out; of the rest it is the conversation before it that is new."""
        before = [message for _ in range(rng.randint(0, self.earlier)) for message in self._answered(rng)]
        if self.asked == "small_talk":
            answer = rng.choice(list(REPLIES))
            question = rng.choice(TYPED)(
                rng.choice(OTHER[answer].split(" | ")) if self.unseen else greeting(answer, rng)
            )
            messages = [*before, Message("user", question)]
            fact = plain(" ".join(each.content for each in messages))
            return self.ask(messages, answer, fact=fact, tools=(CALCULATOR,))
        task = KINDS[self.asked].draw(rng)
        return self.ask([*before, *task.messages], task.answer, split=task.split, tools=(CALCULATOR,))

    def _answered(self, rng: random.Random) -> list[Message]:
        """A question of any kind and its answer."""
        kind = rng.choice(list(KINDS.values()))
        task = kind.draw(rng)
        return [*task.messages, *kind.solution(task)]
