"""Small talk: a greeting gets a greeting, and a question that the model cannot know gets an honest refusal.

Greetings and their like are few and are learnt by heart: they are train questions only. What is held out are questions that must
be refused, a frame around a topic each; one topic in three is no word at all, because people ask about anything.

The two are generated apart. Drawn together, distinct questions would be refusals but for a few hundred: the greetings are soon
used up, and of a thousand questions three in four were refusals where one in three was asked for.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.task import Split, Task, draw_tasks
from ingot.envs.wording import word
from ingot.tokens.chat import Message


def _texts(lines: str) -> tuple[str, ...]:
    """The texts between bars."""
    return tuple(" ".join(text.split()) for text in lines.split("|"))


REPLIES = {
    "Hello! How can I help?": _texts("""
        Hello | Hello! | Hi | Hi! | Hi there | Hello there! | Hey | Hey there | Good morning | Good evening. |
        Good afternoon | Hello, model! | Hi, computer | Hey you | Greetings! | Good day. | Hello again | Hiya
    """),
    "I am fine, thank you.": _texts("""
        How are you? | How are you doing? | How do you do? | How are you today? | Are you well? |
        How is it going? | How are things? | Are you okay? | Everything fine? | Hi, how are you? |
        Hello, how are you? | What's up?
    """),
    "I am a very small language model.": _texts("""
        Who are you? | What are you? | What is your name? | Are you a human? | Are you a robot? | Your name? |
        Tell me about yourself. | Introduce yourself. | Who am I talking to? | Do you have a name?
    """),
    "I add numbers, reverse words and use a calculator.": _texts("""
        What can you do? | Help | What do you know? | How can you help me? | What are you good at? | Help me! |
        What can I ask you? | What should I ask? | Can you help me? | What is it that you can do?
    """),
    "You are welcome.": _texts("""
        Thanks | Thanks! | Thank you | Thank you! | Thank you very much. | Thanks a lot | Many thanks | Thx |
        Great, thanks | Nice, thank you | Good job | Well done! | Cool | That is right, thanks | Perfect! |
        Ok, thanks | Thank you so much! | Thanks so much
    """),
    "Goodbye!": _texts("""
        Bye | Bye! | Goodbye | Good night | See you | See you later! | Bye bye | I have to go. | Farewell |
        That is all, bye | See you tomorrow | Good bye | See ya
    """),
}
UNKNOWN = "I do not know that."
FRAMES = _texts("""
    What is {}? | Who is {}? | Where is {}? | When was {}? | Why is {} so good? | What is the capital of {}? |
    Tell me about {}. | Write a poem about {}. | Explain {}. | Who wrote {}? | What does {} mean? | Is {} true? |
    How do I make {}? | What is the colour of {}? | Do you like {}? | Translate {} into French. | Define {}. |
    Tell me a joke about {}. | How old is {}? | Where can I buy {}? | How far away is {}? | Which {} is best? |
    What is the meaning of {}? | Write a story about {}. | Write code for {}. | Who invented {}? | {}
""")
TOPICS = _texts("""
    France | Spain | Japan | the moon | the sun | love | life | music | water | bread | a cat | a dog | Einstein |
    Mozart | the president | Hamlet | football | the weather | London | Berlin | history | gold | philosophy |
    the universe | a computer | Python | a horse | coffee | the sea | time | money | the war | chess | a train |
    the internet | Africa | rain | snow | tomorrow | my mother | the king | science | apples | the news | a tree |
    green tea | the best film | your friend | a good book | the Earth
""")
LETTERS = "aaabcdeeeefghiiijklmnooopqrrssttuuvwxyz"


class SmallTalk(Environment):
    """Greetings, thanks, questions about the model itself, and questions that it must refuse."""

    label: ClassVar[str] = "small talk"
    refused: float = Field(0.5, ge=0, le=1, description="share of questions that it must refuse")
    direct: float = Field(0.3, ge=0, le=1, description="share that is asked in the mode without thinking")

    def generate(self, seed: int, count: int, split: Split) -> list[Task]:
        """Train tasks keep the share of refusals: greetings repeat when they are used up. Test tasks are refusals."""
        if split == "test":
            return super().generate(seed, count, split)
        rng = random.Random(f"{self.kind}/shares/{seed}")
        refused = [rng.random() < self.refused for _ in range(count)]
        unknown = iter(draw_tasks(f"{self.kind}/unknown", self._unknown, seed, sum(refused), split))
        greetings = iter(draw_tasks(f"{self.kind}/greetings", self._greeting, seed, count - sum(refused), split))
        return [next(unknown if one else greetings) for one in refused]

    def draw(self, rng: random.Random) -> Task:
        return self._unknown(rng) if rng.random() < self.refused else self._greeting(rng)

    def _unknown(self, rng: random.Random) -> Task:
        question = word(FRAMES, rng, self._topic(rng))
        fact = "".join(each for each in question.lower() if each.isalnum() or each == " ")
        return self.ask(question, UNKNOWN, fact=fact, thinking=rng.random() >= self.direct)

    def _greeting(self, rng: random.Random) -> Task:
        answer = rng.choice(list(REPLIES))
        task = self.ask(word(REPLIES[answer], rng), answer, thinking=rng.random() >= self.direct)
        return replace(task, split="train")

    def _topic(self, rng: random.Random) -> str:
        if rng.random() < 2 / 3:
            return rng.choice(TOPICS)
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, 9)))

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer, thinking="" if task.thinking else None)]
