"""Delta learning (arXiv 2507.06187): the chosen answer is a strong model's, the rejected one a weak model's to the same prompt.

What is learnt is the difference between the two, so the chosen answers need not be better than the model's own; Olmo 3 pairs a
32B with a 0.6B model. Both answer through the rollouts (envs/rollout/), to the stage's tasks or to prompts of files. What they
said is encoded by the chat format of the model that is trained. Answers are saved as they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ingot.envs.environment import Environment
from ingot.envs.episode import UNSCORED, Episode, Score
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.endpoint import EndpointPolicy
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.external import LedEnvironment
from ingot.envs.rollout.policies import MessagePolicy, Policy
from ingot.envs.rollout.rollout import Drawing
from ingot.envs.rows import read_rows
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.envs.tools.tool import Tool, schemas
from ingot.inference.checksum import weights_checksum
from ingot.inference.engine import Engine
from ingot.inference.load import load_to_sample
from ingot.post.data.pairs.own_pairs import PAIRS_FILE
from ingot.post.data.pairs.pair import FileAnswer, Pair
from ingot.post.data.pairs.pair_file import encode_answers
from ingot.post.data.pairs.pair_rows import read_prompt
from ingot.post.policy import chat_format
from ingot.post.prefer_config import AnswererConfig, PreferConfig
from ingot.post.processes import Processes
from ingot.post.sampled_answers import SLOTS, AnswerSampler
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.files import write_jsonl
from ingot.workspace.stage import StageFolder

LONGEST = 1 << 16  # tokens of an answerer's conversation at most, if its context is longer


class Prompts(Environment):
    """Prompts of files, whose answers earn nothing."""

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        return UNSCORED


@dataclass(frozen=True)
class ModelPairs:
    """The pairs with the episodes that they are from, and how many prompts gave none."""

    pairs: list[Pair[FileAnswer]]
    episodes: list[tuple[Episode, Episode]]
    without: int


def answer_pairs(chat: ChatFormat, config: PreferConfig, processes: Processes, folder: StageFolder) -> ModelPairs:
    """A pair for every prompt that both models answered; `chat` is of the model that is trained."""
    tasks, environments = prompts(config, folder.seed)
    strong, weak = config.pairs.strong, config.pairs.weak
    assert strong is not None and weak is not None  # as the options are checked
    pairs, episodes, tools = [], [], find_tools(config.tools)
    sides = (
        answers(config, answerer, name, tasks, environments, chat, processes, folder)
        for name, answerer in (("strong", strong), ("weak", weak))
    )
    for better, worse in zip(*sides, strict=True):
        if all(each.ended == "answer" and len(each.segments) == 1 for each in (better, worse)):
            chosen, rejected = _encode(chat, tools, better, worse)
            if chosen != rejected and max(len(each.ids) for each in (chosen, rejected)) <= config.sequence_length + 1:
                pairs.append(Pair(chosen, rejected))
                episodes.append((better, worse))
    return ModelPairs(pairs, episodes, len(tasks) - len(pairs))


def prompts(config: PreferConfig, seed: int) -> tuple[list[Task], dict[str, Environment]]:
    """What both models answer: the prompts of the files, or `prompts` different tasks."""
    if not config.pairs.prompt_files:
        mix = TaskMix(config.tasks)
        if led := [name for name, kind in mix.kinds.items() if isinstance(kind, LedEnvironment)]:
            problem = f"the task kind {led[0]} leads its episodes: what one model was asked in it, another one was not"
            raise RecipeError(problem, fix="pair answers of the model itself, or leave this kind out")
        tasks = {task.id: task for task in mix.generate(seed, config.prompts, "train")}
        return list(tasks.values()), mix.kinds
    environment, found = Prompts(), []
    for place, row in (row for name in config.pairs.prompt_files for row in read_rows(name)):
        try:
            read = read_prompt(row)
        except DataError as error:
            raise DataError(error.problem, place=place, fix=error.fix) from error
        if read.tools:
            fix = "leave `tools` out, or write an environment that has them"
            raise DataError("a prompt with tools that nothing could run", place=place, fix=fix)
        found.append(environment.ask(read.prompt, thinking=bool(read.thinking), split="train"))
    return found, {environment.kind: environment}


def answers(
    config: PreferConfig,
    answerer: AnswererConfig,
    name: str,
    tasks: Sequence[Task],
    environments: dict[str, Environment],
    chat: ChatFormat,
    processes: Processes,
    folder: StageFolder,
) -> list[Episode]:
    """An answer of one model to every task; those that `folder` has from before are not asked for again."""
    with opened(answerer, config, chat) as (made_by, policy, own_chat, length):
        sampler = AnswerSampler(
            tasks,
            lambda: policy,
            own_chat,
            environments,
            Drawing(config.temperature, seed=folder.seed),
            Limits(config.max_new_tokens, length),
            find_tools(config.tools),
        )
        saved = sampler.saved(folder.path / name, {"model": made_by, "tools": config.tools}, folder.progress.say)
        return processes.share(len(tasks), sampler.sample, saved)


@contextmanager
def opened(
    answerer: AnswererConfig, config: PreferConfig, chat: ChatFormat
) -> Iterator[tuple[str, Policy | MessagePolicy, ChatFormat, int]]:
    """The model: what it is, what answers for it, its chat format and the tokens of a conversation at most."""
    if answerer.endpoint is not None:
        with EndpointPolicy(answerer.endpoint, chat) as policy:
            yield f"{answerer.endpoint.url} {answerer.endpoint.model}", policy, chat, LONGEST
        return
    model = load_to_sample(Path(answerer.model), device=config.device)
    length = min(model.config.context, LONGEST)
    yield str(weights_checksum(model)), Engine(model, slots=SLOTS, length=length), chat_format(model), length


def _encode(chat: ChatFormat, tools: Mapping[str, Tool], *episodes: Episode) -> list[FileAnswer]:
    """The answers as the model that is trained reads and writes them, in the task's mode of thinking."""
    task = episodes[0].task
    offered = schemas({**tools, **{tool.name: tool for tool in task.tools}}.values())
    said = [[_in_mode(message, task.thinking) for message in each.messages] for each in episodes]
    return encode_answers(chat, task.messages, said, offered, task.thinking)


def _in_mode(message: Message, thinking: bool) -> Message:
    if message.role != "assistant":
        return message
    return replace(message, thinking=(message.thinking or "") if thinking else None)


def write_model_pairs(folder: Path, made: ModelPairs) -> None:
    """Write pairs.jsonl, in a form that `pairs.files` reads."""
    rows = [
        {
            "task_id": better.task.id,
            "prompt": [message.to_dict() for message in better.task.messages],
            "chosen": [message.to_dict() for message in better.messages],
            "rejected": [message.to_dict() for message in worse.messages],
            "tools": better.task.schemas,
            "rewards": [better.score.reward, worse.score.reward],
        }
        for better, worse in made.episodes
    ]
    write_jsonl(folder / PAIRS_FILE, rows)
