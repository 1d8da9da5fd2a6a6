"""Small talk: a greeting gets a greeting, and a question that the model cannot know gets an honest refusal.

Greetings and their like are few and are learnt by heart: they are train questions only. What is held out are questions that must
be refused, a frame around a topic each; one topic in three is no word at all, because people ask about anything.

A line such as `How are you[| doing| today]?` stands for all that its brackets can say. A line is drawn before what its brackets
say, so that "Hello" does not come more seldom because something else can be said in many ways.

Greetings and refusals are generated apart. Drawn together, distinct questions would be refusals but for a few hundred: the
greetings are soon used up, and of a thousand questions three in four were refusals where one in three was asked for.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.task import Split, Task, draw_tasks
from ingot.envs.tasks._wording import word
from ingot.tokens.chat import Message


def _texts(lines: str) -> tuple[str, ...]:
    """The texts between bars that stand outside of brackets."""
    return tuple(" ".join(text.split()) for text in re.split(r"\|(?![^[]*\])", lines))


REPLIES = {
    "Hello! How can I help?": _texts("""
        Hello | Hello! | Hi | Hi! | Hey | Hello[ there| again|, model|, computer]! | Hi[ there| again|, model|, computer]! |
        Hey[ there| you|, model]! | Good [morning|evening|afternoon|day][|, model]. | Greetings! | Hiya |
        Hello, nice to meet you. | Hi, I am [Anna|Tom|here].
    """),
    "I am fine, thank you.": _texts("""
        How are you? | How are you? | How are you[ doing| today| doing today| now]? | How do you do? |
        [Hi|Hello|Hey][,|!] how are you[| doing| today]? | Are you [well|okay|fine|good]? | How is it going[| today]? |
        How are things[| today]? | Is everything [fine|okay|good]? | Everything [fine|okay|good]? | What's up? |
        How have you been? | How is your day? | And you, how are you?
    """),
    "I am a very small language model.": _texts("""
        Who are you? | Who are you? | What are you? | What is your name? | What's your name? | Do you have a name? |
        [Hi|Hello|Hey][,|!] who are you? | Are you a [human|robot|person|machine|model]? | Are you [human|real]? |
        [Your|And your] name? | Tell me about yourself. | Tell me your name. | [|Please ]introduce yourself. |
        Who am I talking to? | What kind of model are you? | So who are you? | What are you called?
    """),
    "I add numbers, reverse words and use a calculator.": _texts("""
        What can you do? | What can you do? | What can you do [for me|here|now]? | Help | Help me! | What do you know? |
        How can you help[| me]? | What are you good at? | What [can|should|could] I ask[| you]? | Can you help[| me]? |
        What is it that you can do? | Please help[| me]. | How does this work? | What can I do here? | So what can you do? |
        [Hi|Hello|Hey][,|!] what can you do? | Show me what you can do.
    """),
    "You are welcome.": _texts("""
        Thanks | Thanks! | Thank you | Thank you! | Thanks[ a lot| so much| again]! | Thank you[ very much| so much]! |
        Many thanks | Thx | [Great|Nice|Ok|Cool|Perfect|Good|That is right][|,] [thanks|thank you]! | Good job | Well done! |
        [Cool|Perfect|Great|Nice|Very good|Correct|That is right]! | Thanks for [that|this|the answer].
    """),
    "Goodbye!": _texts("""
        Bye | Bye! | Goodbye | Good bye | Good night[|!] | Bye bye | See [you|ya][| later| tomorrow]! | I have to go[| now]. |
        Farewell | [That is all|Thanks|Thank you|I am done][|,] bye! | I am leaving. | Talk to you later.
    """),
}
BRACKETS = re.compile(r"\[([^]]*)\]")
UNKNOWN = "I do not know that."
FRAMES = _texts("""
    What is {}? | Who is {}? | Where is {}? | When was {}? | Why is {} so good? | What is the capital of {}? |
    Tell me about {}. | Write a poem about {}. | Explain {}. | Who wrote {}? | What does {} mean? | Is {} true? |
    How do I make {}? | What is the colour of {}? | Do you like {}? | Translate {} into French. | Define {}. |
    Tell me a joke about {}. | How old is {}? | Who are {}? | How are {}? |
    How is {}? | Where are {}? | Where can I buy {}? | How far away is {}? | Which {} is best? |
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


def greeting(answer: str, rng: random.Random) -> str:
    """One of the texts that have this answer, well written."""
    text = BRACKETS.sub(lambda found: rng.choice(found[1].split("|")), rng.choice(REPLIES[answer]))
    return text[0].upper() + text[1:]


def _typed(text: str, rng: random.Random) -> str:
    """The text with or without its capitals and its last mark, or with another mark; what's is often typed as whats."""
    if rng.random() < 0.6:
        text = text.lower()
    if rng.random() < 0.6:
        text = text.rstrip("?.!") + rng.choice(("", "", "", "", "?", "!"))
    return text.replace("'", "") if rng.random() < 0.3 else text


class SmallTalk(Environment):
    """Greetings, thanks, questions about the model itself, and questions that it must refuse."""

    label: ClassVar[str] = "small talk"
    refused: float = Field(0.5, ge=0, le=1, description="share of questions that it must refuse")
    direct: float = Field(0.3, ge=0, le=1, description="share that is asked in the mode without thinking")

    def generate(self, seed: int, count: int, split: Split) -> list[Task]:
        """Train tasks keep the share of refusals, and greetings repeat as they are drawn. Test tasks are refusals."""
        if split == "test":
            return super().generate(seed, count, split)
        rng = random.Random(f"{self.kind}/shares/{seed}")
        refused = [rng.random() < self.refused for _ in range(count)]
        unknown = iter(draw_tasks(f"{self.kind}/unknown", self._unknown, seed, sum(refused), split))
        return [next(unknown) if one else self._greeting(rng) for one in refused]

    def draw(self, rng: random.Random) -> Task:
        return self._unknown(rng) if rng.random() < self.refused else self._greeting(rng)

    def _unknown(self, rng: random.Random) -> Task:
        question = word(FRAMES, rng, self._topic(rng))
        fact = "".join(each for each in question.lower() if each.isalnum() or each == " ")
        return self.ask(question, UNKNOWN, fact=fact, thinking=rng.random() >= self.direct)

    def _greeting(self, rng: random.Random) -> Task:
        answer = rng.choice(list(REPLIES))
        question = _typed(self._among_words(greeting(answer, rng), rng), rng)
        task = self.ask(question, answer, thinking=rng.random() >= self.direct)
        return replace(task, split="train")

    def _among_words(self, text: str, rng: random.Random) -> str:
        """Now and then something before it or after it that changes nothing, such as a name."""
        if rng.random() < 0.05:
            text = rng.choice(("So, ", "Ok, ", "Ah, ", "And ", "Now ")) + text[0].lower() + text[1:]
        if rng.random() < 0.1:
            end = len(text.rstrip("?.!"))
            text = text[:end] + rng.choice((", ", " ")) + self._topic(rng) + text[end:]
        return text

    def _topic(self, rng: random.Random) -> str:
        if rng.random() < 2 / 3:
            return rng.choice(TOPICS)
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, 9)))

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer, thinking="" if task.thinking else None)]
