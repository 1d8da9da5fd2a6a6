"""Rejection sampling: a model attempts the tasks of an environment, and what earns enough becomes conversations.

    train tasks -> `samples` attempts at each -> the environment's own rewards -> reward >= min_reward -> conversations

With one attempt a task this is a round of STaR without its hints (Zelikman et al. 2022, arXiv 2203.14465), with several it is RFT
(Yuan et al. 2023, arXiv 2308.01825), which learns from all the different right answers to a task: equal ones are kept once.

Attempts are episodes of the rollouts (envs/rollout/), saved as they are made (resumable.py). One whose environment failed is no
attempt: it counts neither for nor against a task. One that a limit cut off is refused whatever it earned, because a model would
learn to break off; so is one in several contexts, which is no single conversation. With `cut_thoughts` it is the other way round:
kept are thoughts that went on for too long, cut there (cut_thoughts.py), whatever they would have earned.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ingot.envs.episode import Episode
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.policies import MessagePolicy, Policy
from ingot.envs.rollout.rollout import Drawing
from ingot.envs.task import Task
from ingot.post.barrier import Between
from ingot.post.processes import Processes
from ingot.post.sampled_answers import AnswerSampler
from ingot.post.synthesis.config import EnvironmentConfig
from ingot.post.synthesis.cut_thoughts import cut_thought
from ingot.post.synthesis.maker import Maker
from ingot.tokens.chat import ChatFormat
from ingot.workspace.errors import DataError
from ingot.workspace.stage import StageFolder

PIECE = 256  # attempts that are saved together: a stop loses those of a piece
ROUND = 1_000_003  # between the seeds of two rounds
WHOLE = ("answer", "stopped")  # an attempt that ended by itself, or by the environment's stop rule


@dataclass(frozen=True)
class AttemptWriter:
    """What makes the attempts. `limit` is the most tokens of an attempt with its prompt, of `chat`'s tokenizer."""

    name: str
    policy: Policy | MessagePolicy
    chat: ChatFormat
    limit: int


@dataclass
class KeptConversations:
    """The conversations of an environment, and the rejected attempts with their reasons."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    tasks: int = 0
    attempts: int = 0
    solved: int = 0

    def summary(self) -> dict[str, Any]:
        """Numbers for the stage's record."""
        return {
            "tasks": self.tasks,
            "attempts": self.attempts,
            "pass_rate": self.solved / self.attempts if self.attempts else 0.0,
            "kept": len(self.rows),
            "tasks_kept": len({row["task_id"] for row in self.rows}),
            "refused": dict(Counter(row["reason"] for row in self.rejected).most_common()),
        }


def attempt(
    config: EnvironmentConfig, writer: AttemptWriter, drawing: Drawing, max_new_tokens: int, folder: StageFolder
) -> list[Episode]:
    """All attempts at all tasks, those of a task together; what `folder` has from before is not attempted again.

    Tasks of which nothing would be kept are attempted in `again` further rounds, each with seeds of its own.
    """
    tasks = train_tasks(config, drawing.seed)
    episodes, missing = list[Episode](), tasks
    for number in range(config.again + 1):
        seeded = replace(drawing, seed=drawing.seed + number * ROUND)
        episodes += _attempt_round(config, writer, seeded, max_new_tokens, folder, missing, number)
        kept = {row["task_id"] for row in select(config, _by_task(episodes, tasks), writer).rows}
        missing = [task for task in tasks if task.id not in kept]
        if not missing:
            break
    return _by_task(episodes, tasks)


def _by_task(episodes: Sequence[Episode], tasks: Sequence[Task]) -> list[Episode]:
    order = {task.id: number for number, task in enumerate(tasks)}
    return sorted(episodes, key=lambda each: order[each.task.id])


def _attempt_round(
    config: EnvironmentConfig,
    writer: AttemptWriter,
    drawing: Drawing,
    max_new_tokens: int,
    folder: StageFolder,
    tasks: Sequence[Task],
    number: int,
) -> list[Episode]:
    """`samples` attempts at each of the tasks."""
    environment = config.environment
    sampler = AnswerSampler(
        [task for task in tasks for _ in range(config.samples)],
        lambda: writer.policy,
        writer.chat,
        {environment.kind: environment},
        drawing,
        Limits(max_new_tokens, writer.limit, config.max_turns),
    )

    def attempt_run(run: slice, between: Between) -> list[Episode]:
        made = sampler.sample(run, between)
        if all(each.failed for each in made):  # a server that is gone, a sandbox that is not there: nothing to save
            raise DataError(
                f"the environment failed in each of {len(made)} attempts: {made[0].score.error}",
                place=environment.kind,
                fix="try it with `ingot env test`; the same command goes on from here",
            )
        return made

    made_from = {
        "writer": writer.name,
        "environment": environment.model_dump(mode="json"),
        "outside": environment.outside(),
        "samples": config.samples,
    }
    folder_name = f"{environment.kind}-again-{number}" if number else environment.kind
    saved = sampler.saved(
        folder.path / "attempts" / folder_name, made_from, folder.progress.say, size=PIECE, together=config.samples
    )
    return Processes(stop=folder.stop).share(len(sampler.tasks), attempt_run, saved)


def train_tasks(config: EnvironmentConfig, seed: int) -> list[Task]:
    """The tasks that are attempted, each once: a small world repeats its questions, a file has so many rows."""
    return list({task.id: task for task in config.environment.generate(seed, config.count, "train")}.values())


def select(config: EnvironmentConfig, episodes: Sequence[Episode], writer: AttemptWriter) -> KeptConversations:
    """The conversations among the attempts; `episodes` has those of a task together."""
    kept = KeptConversations()
    if config.cut_thoughts is not None:
        episodes = [_with_cut_thought(each, writer.chat, config.cut_thoughts) for each in episodes]
    for _, group in groupby(episodes, key=lambda each: each.task.id):
        attempts = list(group)
        counted = [each for each in attempts if not each.failed]
        kept.tasks += 1
        kept.attempts += len(counted)
        kept.solved += sum(each.score.correct for each in counted)
        rate = sum(each.score.correct for each in counted) / len(counted) if counted else 0.0
        for number, (episode, reason) in enumerate(zip(attempts, _reasons(config, attempts), strict=True)):
            row = {
                "task_id": episode.task.id,
                "environment": episode.task.kind,
                "sample": number,
                "reward": episode.score.reward,
                "rewards": dict(episode.score.rewards),
                "attempts": len(counted),
                "pass_rate": rate,
                "writer": writer.name,
            }
            if reason:
                row |= {"reason": reason, "error": episode.score.error, "answer": episode.answer}
                kept.rejected.append(row)
            else:
                kept.rows.append(_conversation_row(config, episode) | row)
    return kept


def _reasons(config: EnvironmentConfig, attempts: Sequence[Episode]) -> Iterator[str]:
    """Why each of the attempts at a task is not kept; empty for those that are."""
    seen: set[str] = set()
    for each in attempts:
        said = json.dumps([message.to_dict() for message in each.messages], sort_keys=True)
        if each.failed:
            yield "environment failed"
        elif each.ended not in WHOLE:
            yield f"ended by {each.ended}" if config.cut_thoughts is None else "thought not too long"
        elif config.cut_thoughts is None and each.score.reward < config.min_reward:
            yield "reward too low"
        elif len(each.segments) > 1:
            yield "several contexts"
        elif said in seen:
            yield "said before"
        elif config.most_kept is not None and len(seen) == config.most_kept:
            yield "enough of this task"
        else:
            seen.add(said)
            yield ""


def _with_cut_thought(episode: Episode, chat: ChatFormat, limit: int) -> Episode:
    """The attempt as far as it is kept: `stopped` after so many tokens of thinking; otherwise it is none."""
    cut = None if episode.failed else cut_thought(episode, chat, limit)
    return replace(episode, messages=[cut], ended="stopped") if cut is not None else replace(episode, ended="")


def _conversation_row(config: EnvironmentConfig, episode: Episode) -> dict[str, Any]:
    """An attempt as a row that `sft` reads (row_forms.py): as it was, or as its maker has it, with the row that it is from."""
    task = episode.task
    if isinstance(config.environment, Maker):
        return config.environment.conversation(episode).as_row() | {"made_from": task.data["place"]}
    return {
        "messages": [message.to_dict() for message in (*task.messages, *episode.messages)],
        "tools": task.schemas,
        "thinking": task.thinking,
    }
