"""Plays an environment of `verifiers` against a server and prints what was recorded.

    python verifiers_client.py URL TOKENIZER_FOLDER

The taskset, the rollout, the interception of the agent's requests and the client that renders and records tokens are those of
`verifiers`; the agent is a few requests in this process instead of a program that would have to be installed first.
It runs in the environment that has `verifiers`, and imports nothing of ours.
"""
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import sys

import httpx
import verifiers.v1 as vf
from renderers import DefaultRendererConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult, SubprocessConfig

QUESTIONS = ("Bye", "Hello", "What is 12*34?")
FOLLOW_UP = "And again?"
SEED, TOKENS, TEMPERATURE = 7, 24, 1.0


class Politeness(vf.Task[vf.TaskData]):
    """Says something; a long answer earns more."""

    @vf.reward(weight=1.0)
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_message.content or ""))


class Greetings(vf.Taskset[Politeness, vf.TasksetConfig]):
    """Three questions."""

    def load(self) -> list[Politeness]:
        return [Politeness(vf.TaskData(prompt=question)) for question in QUESTIONS]


class TwoTurns(vf.Harness[HarnessConfig]):
    """An agent that asks the question, and then a second one."""

    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        messages = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {secret}"}) as client:
            for follow_up in (FOLLOW_UP, None):
                body = {"model": ctx.model, "messages": messages}
                response = await client.post(f"{endpoint}/chat/completions", json=body)
                response.raise_for_status()
                said = response.json()["choices"][0]["message"]
                messages += [{"role": "assistant", "content": said.get("content") or ""}]
                messages += [{"role": "user", "content": follow_up}] if follow_up else []
        return ProgramResult(0, "", "")


async def main(url: str, folder: str) -> None:
    config = vf.AgentConfig(
        model="speaker",
        client=vf.TrainClientConfig(base_url=f"{url}/v1", renderer=DefaultRendererConfig(), renderer_model_name=folder),
        sampling={"temperature": TEMPERATURE, "max_tokens": TOKENS, "seed": SEED},
        harness=HarnessConfig(id="null"),
        runtime=SubprocessConfig(),
    )
    agent = vf.Agent(config)
    agent.harness = TwoTurns(HarnessConfig(id="null"))
    async with agent:
        for task in Greetings(vf.TasksetConfig(id="greetings")):
            trace = await agent.run(task)
            branches = [
                {"tokens": each.token_ids, "sampled": each.sampled_mask, "logprobs": each.logprobs}
                for each in trace.branches
            ]
            errors = [str(error) for error in trace.errors]
            sys.stdout.write(json.dumps({"branches": branches, "errors": errors}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
