"""What verifiers itself says given answers earn: its rollout, its client, its rewards, and a server that gives these answers.

python own_rewards.py < ANSWERS_BY_QUESTION.json
"""
# mypy: ignore-errors

import asyncio
import json
import sys

import httpx
import verifiers.v1 as vf
from aiohttp import web
from greetings import Greetings, GreetingsConfig
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


async def main(answers):
    async def answer(request):
        body = await request.json()
        message = {"role": "assistant", "content": answers[body["messages"][-1]["content"]]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        row = {"id": "0", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return web.json_response(row)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    config = vf.AgentConfig(
        model="given",
        client=vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1"),
        harness=HarnessConfig(id="null"),
        runtime=SubprocessConfig(),
    )
    agent = vf.Agent(config)
    agent.harness = OneTurn(HarnessConfig(id="null"))
    async with agent:
        for task in Greetings(GreetingsConfig(id="greetings", count=len(answers))):
            trace = await agent.run(task)
            rewards = {name: reward.score for name, reward in trace.rewards.items()}
            row = {"question": task.data.prompt, "reward": trace.reward, "rewards": rewards, "metrics": trace.metrics}
            sys.stdout.write(json.dumps(row) + "\n")
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(json.load(sys.stdin)))
