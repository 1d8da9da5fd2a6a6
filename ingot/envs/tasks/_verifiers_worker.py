"""Loads an environment of `verifiers` and plays its episodes; another Python runs it (`_verifiers_child.py`).

Lines of JSON come in and go out. Each belongs to a talk: the first loads the environment, every other one is an episode.

    in   {"talk": 0, "load": {environment, options, most, unsafe}}   out  {"talk": 0, "end": {tasks} or {error, fix}}
    in   {"talk": 7, "play": 3, "hash": …}                           out  {"talk": 7, "ask": {agent, messages, tools, most}}
    in   {"talk": 7, "said": {content, thinking, calls, finish, …}}  out  … another "ask", or
    in   {"talk": 7, "refused": why}                                 out  {"talk": 7, "end": {rewards, …} or {error}}
    in   {"talk": 7, "cancel": true}                                 out  {"talk": 7, "end": {error}}

The seam is the client of `verifiers`: tasks, agents, tools and rewards are its own, and where its client would ask a server for a
turn, ours asks for it here, with the messages as the agent's program sent them. No text is encoded on this side.

The agent `null`, a chat loop with tools, runs in this process and not as a program of its own, which would have to be installed
and started for every episode. Nothing of Ingot's is imported.
"""
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import json
import logging
import os
import sys
import threading
import traceback

INSTALL = "install it for this Python: -m pip install verifiers==0.4.0"
FINE = ("agent_completed", "user_closed")  # how verifiers calls an end that no rule and no limit brought about
LIMIT = "ingot_limit"


class Bad(Exception):
    """The environment cannot be loaded: what is wrong, and what to do."""


class Lines:
    """What comes in, by talk, and what goes out."""

    def __init__(self, loop):
        self.loop, self.talks, self.first = loop, {}, asyncio.Queue()
        self.out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)  # what an environment prints must not stand among the lines
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with open(0, "rb", closefd=False) as lines:  # not sys.stdin, whose lock would be held when Python ends
            for line in lines:
                self.loop.call_soon_threadsafe(self._take, json.loads(line))
        self.loop.call_soon_threadsafe(self.first.put_nowait, None)

    def _take(self, line):
        talk = self.talks.get(line["talk"])
        if talk is None:
            self.first.put_nowait(line)
        elif "cancel" in line:
            talk.task.cancel()
        else:
            talk.inbox.put_nowait(line)

    def write(self, line):
        data = memoryview(json.dumps(line).encode() + b"\n")
        while data:
            data = data[self.out.write(data) :]


class Talk:
    """An episode; its agents ask one after the other."""

    def __init__(self, lines, number):
        self.lines, self.number, self.inbox, self.turn = lines, number, asyncio.Queue(), asyncio.Lock()
        self.task = None

    async def ask(self, request):
        async with self.turn:
            self.lines.write({"talk": self.number, "ask": request})
            return await self.inbox.get()


async def main():
    lines = Lines(asyncio.get_running_loop())
    loading = await lines.first.get()
    if loading is None:
        return
    try:
        played = load(**loading["load"])
        serving = played.env.serving()
        await serving.__aenter__()
    except Bad as error:
        problem, fix = error.args
        return lines.write({"talk": loading["talk"], "end": {"error": problem, "fix": fix}})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the environment's author may raise anything
        problem = f"the environment cannot be loaded: {type(error).__name__}: {error}"
        fix = f"look at {at(error)}" if at(error) else "check `environment` and `options`"
        return lines.write({"talk": loading["talk"], "end": {"error": problem, "fix": fix}})
    lines.write({"talk": loading["talk"], "end": {"tasks": [played.describe(task) for task in played.tasks]}})
    try:
        while (line := await lines.first.get()) is not None:
            if "play" in line:
                talk = lines.talks[line["talk"]] = Talk(lines, line["talk"])
                talk.task = asyncio.create_task(played.play(talk, line))
            else:  # its talk has just ended
                lines.write({"talk": line["talk"], "end": {"error": "cancelled"}})
        tasks = [talk.task for talk in lines.talks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await serving.__aexit__(None, None, None)


def at(error):
    """The line of the environment's own code at which it raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
    return f"{own[-1].filename}:{own[-1].lineno}" if own and "importlib" not in own[-1].filename else ""


def load(environment, options, most, unsafe):
    """The environment, with our client and the chat loop in place."""
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise Bad(f"verifiers 0.4 cannot be imported: {error}", INSTALL) from error
    from pydantic import ValidationError
    from verifiers.v1.utils import loaders

    logging.disable(logging.INFO)
    try:
        loaders.import_taskset(environment)
    except ModuleNotFoundError as error:
        fix = "give the name of a package that this Python has installed, or the path of a file or package"
        raise Bad(f"there is no environment {environment}: {error}", fix) from error
    data = {**options, "taskset": {**options.get("taskset", {}), "id": environment}}
    try:
        config = loaders.resolve_env_config(json.loads(json.dumps(data)))  # it writes into what it is given
        shell = loaders.default_harness_id(environment) == "bash"
        for name in config.agent_harnesses():
            given, agent = data.setdefault(name, {}), getattr(config, name)
            if agent.harness is None and shell:
                given["harness"] = {"id": "null"}  # an agent that asks for no shell gets none
            if "runtime" not in agent.model_fields_set:
                given["runtime"] = {"type": "subprocess"}  # and none of the containers of a cloud
        config = loaders.resolve_env_config(data)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Bad(f"its options do not fit: {wrong}", "write `options` as the [env] block of verifiers") from error
    for name, harness in config.agent_harnesses().items():
        runs_code = loaders.harness_class(harness.id).EXECUTES_CODE
        if runs_code and getattr(config, name).runtime.type == "subprocess" and not unsafe:
            fix = f"give it a container (options: {name}: runtime: type: docker), or allow it: unsafe: true"
            raise Bad(f"the agent {name} ({harness.id}) runs the model's commands on this machine, unfenced", fix)
    env = loaders.load_environment(config)
    played = HostedEnvironment(vf, env, list(itertools.islice(env.taskset, most)))
    chat_here()
    return played


class HostedEnvironment:
    """The environment and its tasks, and the client that asks Ingot for turns."""

    def __init__(self, vf, env, tasks):
        from verifiers.v1.clients.train import serialize_completion
        from verifiers.v1.configs.client import TrainClientConfig
        from verifiers.v1.dialects import ChatDialect
        from verifiers.v1.errors import ProviderError
        from verifiers.v1.interception import server
        from verifiers.v1.types import AssistantMessage, Response, ToolCall, Usage

        self.env, self.tasks, self.traces = env, tasks, {}
        played, ids = self, itertools.count()

        class PolicyConfig(TrainClientConfig):
            """A client that is trained, so that whole turns are asked for and nothing is relayed."""

        class PolicyClient(vf.Client):
            """Asks for a turn in the talk of the episode."""

            async def get_response(self, dialect, body, sampling, session_id=None, turn=None, headers=None):
                if not isinstance(dialect, ChatDialect):
                    raise NotImplementedError("an agent must speak OpenAI's chat completions")
                talk, trace = played.traces[session_id]
                request = dialect.parse_request(body)
                shown = {"name", "description", "parameters"}
                asked = {
                    "agent": session_id,
                    "messages": [plain(each) for each in request.messages],
                    "tools": [each.model_dump(include=shown) for each in request.tools or ()],
                    "most": body.get("max_completion_tokens") or body.get("max_tokens"),
                }
                answer = await talk.ask(asked)
                if "refused" in answer:
                    trace.stop(LIMIT)  # a limit is no failure: what there is is scored
                    raise ProviderError(f"maximum context length: {answer['refused']}", status_code=400)
                said = answer["said"]
                calls = [ToolCall(id=f"call_{next(ids)}", name=name, arguments=text) for name, text in said["calls"]]
                message = AssistantMessage(
                    content=said["content"] or None, reasoning_content=said["thinking"], tool_calls=calls or None
                )
                usage = Usage(prompt_tokens=said["prompt_tokens"], completion_tokens=said["tokens"])
                response = Response(
                    id=f"turn-{next(ids)}", created=0, model=body["model"], message=message,
                    finish_reason="tool_calls" if calls else said["finish"], usage=usage,
                )  # fmt: skip
                response.raw = serialize_completion(response, body["model"])
                return response

        usual = server.resolve_client
        server.resolve_client = lambda config: PolicyClient() if isinstance(config, PolicyConfig) else usual(config)
        self.context = vf.ModelContext(model="policy", client=PolicyConfig(base_url="http://ingot.invalid/v1"))

    def describe(self, task):
        data = task.data
        prompt = data.prompt if isinstance(data.prompt, list) else [] if data.prompt is None else [data.prompt]
        messages = [{"role": "user", "content": each} if isinstance(each, str) else plain(each) for each in prompt]
        system = [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
        own = data.model_dump(mode="json", exclude_unset=True, exclude={"idx", "prompt", "system_prompt"})
        return {"messages": system + messages, "hash": task.hash, "data": own}

    async def play(self, talk, line):
        """Play one episode, and tell how it ended."""
        mine = []

        def watch(trace):
            self.traces[trace.id] = talk, trace
            mine.append(trace.id)

        try:
            task = self.tasks[line["play"]]
            if task.hash != line["hash"]:
                told = {"error": "the tasks are others than when they were listed: the environment draws them anew"}
            else:
                told = outcome(await self.env.run_episode(task, self.context, on_trace=watch))
        except asyncio.CancelledError:
            told = {"error": "cancelled"}
        except Exception as error:  # noqa: BLE001 - code of the environment's author: it is counted and shown as what it is
            told = {"error": f"{type(error).__name__}: {error}"}
        for each in mine:
            del self.traces[each]
        del talk.lines.talks[talk.number]
        talk.lines.write({"talk": talk.number, "end": told})


def outcome(episode):
    """What an episode earned; an error if anything failed, because then nobody knows."""
    trained = [trace for trace in episode.traces if trace.agent.trainable]
    errors = [*episode.errors, *(error for trace in episode.traces if not trace.ok for error in trace.errors)]
    if not episode.ok:
        return {"error": f"{errors[-1].type}: {errors[-1].message}" if errors else "the episode failed"}
    if len(trained) != 1:
        return {"error": f"{len(trained)} agents of the environment are trained; here an episode trains one"}
    (trace,) = trained
    unscored = [name for name, reward in trace.rewards.items() if reward is None]
    if unscored:
        return {"error": f"no reward {', '.join(unscored)}: it was not scored"}
    return {
        "agent": trace.id,
        "reward": trace.reward,
        "rewards": {name: [reward.score, reward.weight] for name, reward in trace.rewards.items()},
        "metrics": {name: value for name, value in trace.metrics.items() if value is not None},
        "stopped": trace.stop_condition not in (None, LIMIT, *FINE),
    }


def plain(message):
    """A message of verifiers as plain JSON."""
    content = message.content
    if isinstance(content, list):
        if any(part.type != "text" for part in content):
            raise ValueError("a message has an image, which the policy cannot see")
        content = "\n".join(part.text for part in content)
    row = {"role": message.role, "content": content or ""}
    if message.role == "assistant":
        row["thinking"] = message.reasoning_content
        row["calls"] = [[call.name, call.arguments] for call in message.tool_calls or ()]
    return row


def chat_here():
    """Let the chat loop `null` run in this process where it would be a program of this machine."""
    from verifiers.v1.harnesses.null.harness import NullHarness
    from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
    from verifiers.v1.runtimes import ProgramResult

    arguments = contextvars.ContextVar("arguments")
    program = {"__name__": "chat_program"}
    exec(
        compile(CHAT_PROGRAM_SOURCE, "chat_program", "exec"), program
    )  # the text of the program that would be installed
    parse, program["parse_args"] = program["parse_args"], arguments.get
    setup, launch = NullHarness.setup, NullHarness.launch

    class Here:
        """A runtime in which the chat loop is a coroutine."""

        def __init__(self, runtime):
            self.runtime = runtime

        def __getattr__(self, name):
            return getattr(self.runtime, name)

        async def prepare_uv_script(self, *_, **__):
            return []

        async def run_program(self, argv, env):
            sys.argv = ["chat", *argv]
            given = parse()
            if given.initial_messages_file:
                given.initial_messages_file = str(self.runtime.workdir / given.initial_messages_file)
            arguments.set(given)
            try:
                await program["main"]()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as a program that ends with a traceback
                code = error.code if isinstance(error, SystemExit) else 1
                return ProgramResult(code, "", traceback.format_exc())
            return ProgramResult(0, "", "")

    async def setup_here(self, runtime):
        if runtime.type != "subprocess":
            await setup(self, runtime)

    async def launch_here(self, ctx, trace, runtime, *rest, **more):
        return await launch(self, ctx, trace, Here(runtime) if runtime.type == "subprocess" else runtime, *rest, **more)

    NullHarness.setup, NullHarness.launch = setup_here, launch_here


if __name__ == "__main__":
    for name in ("NO_PROXY", "no_proxy"):  # agents and tools are reached on this machine
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1,localhost")))
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(main())
