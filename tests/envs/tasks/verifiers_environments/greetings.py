"""Single turns: a few questions, rewards with weights, a metric; one of the rewards may raise."""
# mypy: ignore-errors

import verifiers.v1 as vf

QUESTIONS = ("Bye", "Hello", "What is 12*34?", "Who are you?", "Good morning", "Is it late?", "Bye bye", "And now?")


class Greeting(vf.Task[vf.TaskData]):
    """A longer answer earns more."""

    @vf.reward(weight=0.5)
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))

    @vf.reward(weight=2.0)
    async def vowels(self, trace: vf.Trace) -> float:
        if self.data.name == "raises":
            raise ValueError("the verifier is broken")
        text = trace.last_reply
        return sum(letter in "aeiou" for letter in text) / max(1, len(text))

    @vf.metric
    async def words(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply.split()))


class GreetingsConfig(vf.TasksetConfig):
    """How many questions, and which of them cannot be scored."""

    count: int = 3
    broken: tuple[str, ...] = ()


class Greetings(vf.Taskset[Greeting, GreetingsConfig]):
    """The questions."""

    def load(self):
        for question in QUESTIONS[: self.config.count]:
            name = "raises" if question in self.config.broken else None
            yield Greeting(vf.TaskData(prompt=question, name=name))


__all__ = ["Greetings"]
