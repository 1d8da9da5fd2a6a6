"""What verifiers itself says greedy answers of a server earn: its rollout, its client, its rewards.

python own_rewards.py URL [OPTIONS]
"""
# mypy: ignore-errors

import asyncio
import json
import sys

import httpx
import verifiers.v1 as vf
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult, SubprocessConfig


class OneTurn(vf.Harness[HarnessConfig]):
    """Asks once."""

    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        async with httpx.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {secret}"}) as client:
            (await client.post(f"{endpoint}/chat/completions", json=body)).raise_for_status()
        return ProgramResult(0, "", "")


async def main(url, tokens):
    from greetings import Greetings, GreetingsConfig

    config = vf.AgentConfig(
        model="speaker",
        client=vf.EvalClientConfig(base_url=f"{url}/v1"),
        sampling={"temperature": 0.0, "max_tokens": int(tokens)},
        harness=HarnessConfig(id="null"),
        runtime=SubprocessConfig(),
    )
    agent = vf.Agent(config)
    agent.harness = OneTurn(HarnessConfig(id="null"))
    async with agent:
        for task in Greetings(GreetingsConfig(id="greetings", count=8)):
            trace = await agent.run(task)
            rewards = {name: reward.score for name, reward in trace.rewards.items()}
            row = {"question": task.data.prompt, "reward": trace.reward, "rewards": rewards, "metrics": trace.metrics}
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
