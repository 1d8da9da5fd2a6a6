"""A tool: a server that multiplies, shared by all tasks; the reward wants its result in the answer."""
# mypy: ignore-errors

import verifiers.v1 as vf


class Times(vf.Toolset[vf.SharedToolsetConfig]):
    """Multiplication."""

    TOOL_PREFIX = None

    @vf.tool
    def times(self, a: int, b: int) -> str:
        """Multiply two whole numbers."""
        return str(a * b)


class Product(vf.Task[vf.TaskData]):
    """Wants a real call, and the product."""

    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        return float("408" in trace.last_reply)

    @vf.reward(weight=0.25)
    async def called(self, trace: vf.Trace) -> float:
        return float(any(message.content == "408" for message in trace.tool_messages))


class MultipliesConfig(vf.TasksetConfig):
    """Where the tool runs."""

    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class Multiplies(vf.Taskset[Product, MultipliesConfig]):
    """One question."""

    def load(self):
        yield Product(vf.TaskData(prompt="What is 12*34?"))

    @classmethod
    def toolsets(cls, config):
        return [Times(config.tools)]


__all__ = ["Multiplies"]


if __name__ == "__main__":
    Times.run()
