"""Several turns: a scripted user opens the conversation, says a second thing and a third one."""
# mypy: ignore-errors

import verifiers.v1 as vf

SAYS = ("Bye", "And again?", "Hello")


class Talk(vf.Task[vf.TaskData]):
    """Earns one for every answer."""

    @vf.reward
    async def answers(self, trace: vf.Trace) -> float:
        return float(len(trace.assistant_messages))


class Talks(vf.Taskset[Talk, vf.TasksetConfig]):
    """One task without a prompt: the user opens."""

    def load(self):
        yield Talk(vf.TaskData(prompt=None, name="talk", system_prompt="Be kind."))


class AsksAgain(vf.SingleAgentEnv):
    """The user."""

    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            for text in SAYS:
                if (await interaction.turn(text)).terminated:
                    break


__all__ = ["AsksAgain", "Talks"]
