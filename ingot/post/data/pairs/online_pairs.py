"""Online DPO (arXiv 2402.04792): pairs of the current policy's own answers, sampled anew every `refresh` steps.

Every step is online, a number of steps is semi-online (arXiv 2506.21495). The reference stays the input checkpoint. Answers that
earned the same are no pair: nothing is learnt from a tie. A round that gives no pair at all is followed by another one on other
tasks, a few times. A checkpoint holds the pairs of its round, so a stage that resumes in the middle of one trains on the same:
the weights that sampled them are gone by then.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.tools.find import find_tools
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.data.conversations.sequences import ShuffledPool, pack_groups
from ingot.post.data.pairs.answers import SLOTS
from ingot.post.data.pairs.own_pairs import OwnPairs, find_pairs, write_pairs
from ingot.post.data.pairs.pair import answer_length, number_groups, pair_sequences
from ingot.post.policy import chat_format
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.samplers.task_stream import step_seed
from ingot.tokens.batch import Batch, TokenSequence
from ingot.train.batches import deal
from ingot.train.device import choose_sampling_precision
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder

TRIES = 4  # rounds of tasks, of which one must give a pair


class OnlinePairs(Source):
    """Steps of pairs of the newest round. `whole` is what is sampled from: `model` itself, unless processes divide that.

    A `judge` may change what answers earn (reward_model.py).
    """

    def __init__(
        self,
        model: Transformer,
        config: PreferConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
        judge: Judge | None = None,
    ) -> None:
        assert config.pairs.refresh is not None
        self.model, self.config, self.folder, self.refresh = model, config, folder, config.pairs.refresh
        self.processes, self.whole, self.judge = processes, whole or model, judge
        self.chat, self.mix, self.tools = chat_format(model), TaskMix(config.tasks), find_tools(config.tools)
        alone = self.processes.size == 1  # else it samples from the whole copy that it has (answers.py)
        dtype = choose_sampling_precision("auto", self.whole.embedding.weight.device) if alone else None
        self.engine = Engine(self.whole, slots=SLOTS, length=config.sequence_length, dtype=dtype)
        self.reference = copy.deepcopy(self.whole) if config.algorithm.wants_reference else None
        self.round, self.groups, self.metrics = -1, list[list[TokenSequence]](), dict[str, float]()

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        if self.round != step // self.refresh:
            self._sample_round(step // self.refresh)
        count = min(self.config.batch_pairs, len(self.groups))
        pool = ShuffledPool(len(self.groups), step_seed(self.folder.seed, self.round))
        drawn = [self.groups[pool[step % self.refresh * count + place]] for place in range(count)]
        sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
        return deal(pack_groups(number_groups(drawn), *sizes), rank, world), self.metrics

    def _sample_round(self, number: int) -> None:
        """Pairs of the policy as it is now."""
        self.processes.renew(self.whole, self.model)
        self.engine.update(None, version=number)
        for attempt in range(TRIES):
            found = find_pairs(self._answers(step_seed(self.folder.seed, number * TRIES + attempt)), self.config)
            if found.pairs:
                break
        else:
            raise CheckFailed(
                f"round {number}: no pair among {TRIES} times {self.config.prompts} tasks: the answers to each earn the same "
                f"({found.reward:.2g} on average)",
                place=str(self.folder.path),
                fix="choose tasks that the model gets right sometimes and wrong sometimes, or fewer steps",
            )
        self.processes.once(lambda: write_pairs(self.folder.path, found.pairs, self.chat.tokenizer))
        self.groups = pair_sequences(found.pairs, self.reference, self.config.sequence_length, self.processes)
        self.round, self.metrics = number, describe(found)

    def _answers(self, seed: int) -> list[Episode]:
        config = self.config
        tasks = [task for task in self.mix.generate(seed, config.prompts, "train") for _ in range(config.samples)]

        def sample_run(run: slice, between: Between) -> list[Episode]:
            answers = rollout(
                tasks,
                self.engine,
                self.chat,
                self.mix.kinds,
                drawing=Drawing(config.temperature, seed=seed),
                limits=Limits(config.max_new_tokens, config.sequence_length),
                tools=self.tools,
                only=run,
                between=between,
            )
            return answers if self.judge is None else self.judge(answers, between)

        return self.processes.share(len(tasks), sample_run)

    def state(self) -> dict[str, Any]:
        groups = [[[sequence.tokens, dict(sequence.streams)] for sequence in group] for group in self.groups]
        return {"round": self.round, "groups": groups, "metrics": self.metrics}

    def restore(self, state: dict[str, Any]) -> None:
        self.round, self.metrics = state.get("round", -1), state.get("metrics", {})  # nothing: the beginning
        self.groups = [[TokenSequence(*sequence) for sequence in group] for group in state.get("groups", ())]


def describe(found: OwnPairs) -> dict[str, float]:
    """Numbers about a round, logged with each of its steps."""

    def mean_length(answers: Sequence[Episode]) -> float:
        return sum(map(answer_length, answers)) / len(answers)

    return {
        "reward": found.reward,
        "pairs": float(len(found.pairs)),
        "chosen_length": mean_length([pair.chosen for pair in found.pairs]),
        "rejected_length": mean_length([pair.rejected for pair in found.pairs]),
    }
