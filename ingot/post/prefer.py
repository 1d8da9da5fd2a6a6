"""The stage `prefer`: train on pairs of answers, or on single answers that are good or bad.

    pairs.files           people's own rows (pair_file.py)
    pairs.strong, weak    answers of two other models (model_pairs.py), which `inputs` may name too: strong, weak
    pairs.refresh         answers of the policy, sampled anew while it trains (online_pairs.py)
    none of them          answers of the input checkpoint, sampled before training (own_pairs.py)

Except while they are sampled anew, pairs are a pure function of the input checkpoint, the files and the seed. Answers and the
reference's log-probabilities are saved while they are made (resumable.py), so an interrupted stage resumes with the pairs of an
undisturbed one. In several processes the whole model that sampled them is gone before the one that is trained is divided
(processes.py). A loss without a reference computes none of its log-probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ingot.model.transformer import Transformer
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.data.pairs.answers import sample_answers
from ingot.post.data.pairs.model_pairs import answer_pairs, write_model_pairs
from ingot.post.data.pairs.online_pairs import OnlinePairs
from ingot.post.data.pairs.own_pairs import mean_reward, sample_pairs, write_pairs
from ingot.post.data.pairs.pair import Answer, Pair, PairSource, pair_sequences, within
from ingot.post.data.pairs.pair_file import FileRows, read_pairs
from ingot.post.data.pairs.pair_lengths import describe_lengths
from ingot.post.data.pairs.unpaired import Rated, UnpairedSource, rated_sequences
from ingot.post.policy import chat_format
from ingot.post.prefer_config import AnswererConfig, PairsConfig, PreferConfig
from ingot.post.rewards.reward_model import Judge, find_judge
from ingot.post.stage import PostStage
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.stage import StageFolder

LOGGED = ("loss", "preference_accuracy", "margin", "reward", "pairs")
Pairs = Sequence[Pair[Answer]]


class Prefer(PostStage[PreferConfig]):
    """Pairs, or rated answers, from wherever the options say."""

    def __init__(self, config: PreferConfig, inputs: Mapping[str, Path], folder: StageFolder) -> None:
        super().__init__(config, inputs, folder)
        self.told: dict[str, Any] = {}  # what the summary says of the data

    def source(self) -> Source:
        if self.config.pairs.refresh is not None:
            return OnlinePairs(self.model, self.config, self.folder, self.processes, self._whole(), self._judge())
        return self._pair_source() if self.config.algorithm.paired else self._unpaired_source()

    def _whole(self) -> Transformer:
        return self.processes.whole(self.model, self.inputs["checkpoint"])  # a copy is gone when it is not held

    def _pair_source(self) -> PairSource:
        config = self.config
        whole = self._whole() if config.pairs.own or config.algorithm.wants_reference else None
        found, kept, fix = self._find_pairs(whole)
        self.told |= {"pairs": len(kept), "lengths": describe_lengths(found, kept)}
        self.folder.progress.say(f"{len(kept)} pairs, {len(found) - len(kept)} left out for their lengths")
        self._check_enough(len(kept), fix)
        reference = whole if config.algorithm.wants_reference else None
        groups = pair_sequences(kept, reference, config.sequence_length, self.processes, self.folder)
        return PairSource(groups, *self._sizes())

    def _find_pairs(self, whole: Transformer | None) -> tuple[Pairs, Pairs, str]:
        """All pairs, the pairs within the length cap, and the fix to print if there are too few."""
        config = self.config
        if config.pairs.files:
            found: Pairs = self._read().pairs
            return (
                found,
                within(found, config.longest_gap),
                "give more rows, a lower batch_pairs or a larger length_gap",
            )
        if config.pairs.strong is not None:
            found = self._ask_models()
            return (
                found,
                within(found, config.longest_gap),
                "give more prompts, a lower batch_pairs or a larger length_gap",
            )
        assert whole is not None  # it samples
        return self._sample(whole)

    def _unpaired_source(self) -> PoolSource:
        whole = self._whole()
        rows = self._read().rated if self.config.pairs.files else self._rate(whole)
        good = sum(row.good for row in rows)
        self.told |= {"good_answers": good, "bad_answers": len(rows) - good}
        self.folder.progress.say(f"{good} good and {len(rows) - good} bad answers")
        self._check_enough(len(rows), "give more rows, sample more prompts, or lower batch_pairs")
        groups = rated_sequences(rows, whole, self.config.sequence_length, self.processes, self.folder)
        return UnpairedSource(groups, *self._sizes(), self.model, whole, self.processes)

    def _sizes(self) -> tuple[int, int, int, int]:
        config = self.config
        return config.batch_pairs, config.sequence_length, config.micro_batch_tokens, self.folder.seed

    def _read(self) -> FileRows:
        """The rows of the files."""
        config, chat = self.config, chat_format(self.model)
        longest = config.sequence_length + 1  # the last token is only predicted
        pairs = config.pairs
        found = read_pairs(pairs.files, chat, longest, pairs.too_long, paired=config.algorithm.paired)
        if found.left_out:
            self.folder.progress.say(f"{found.left_out} rows are left out: they have more than {longest} tokens")
        self.told["rows_too_long"] = found.left_out
        return found

    def _ask_models(self) -> Pairs:
        """Pairs of a strong and a weak model."""
        made = answer_pairs(chat_format(self.model), self.config, self.processes, self.folder)
        self.told["prompts_without_a_pair"] = made.without
        self.processes.once(lambda: write_model_pairs(self.folder.path, made))
        return made.pairs

    def _sample(self, whole: Transformer) -> tuple[Pairs, Pairs, str]:
        """Pairs of the input checkpoint's own answers."""
        config, tokenizer = self.config, chat_format(self.model).tokenizer
        self.folder.progress.say(f"sampling {config.prompts * config.samples} answers to {config.prompts} tasks")
        own = sample_pairs(whole, config, self.folder.seed, self.processes, self.folder, self._judge())
        self.told["reward"] = own.reward
        self.processes.once(lambda: write_pairs(self.folder.path, own.pairs, tokenizer))
        fix = f"the answers earned {own.reward:.2g} on average: sample more prompts, or tasks neither too easy nor too hard"
        return own.uncapped, own.pairs, fix

    def _judge(self) -> Judge | None:
        """A reward model that says which answers are better, if there is one."""
        judge = find_judge(self.inputs, self.model, self.config, 1.0)
        if judge is not None and self.config.pairs.choose == "right_wrong":
            raise RecipeError(
                "a reward model knows better and worse answers, not right and wrong ones",
                place="pairs.choose",
                fix="write pairs: {choose: best_worst}, or inputs: {reward_model: null}",
            )
        return judge

    def _rate(self, whole: Transformer) -> list[Rated]:
        """The input checkpoint's own answers, right (reward 1) or wrong (reward 0)."""
        answers = sample_answers(whole, self.config, self.folder.seed, self.processes, self.folder)
        self.told["reward"] = mean_reward(answers)
        known = [each for each in answers if not each.failed and each.sampled_count and each.score.reward in (0, 1)]
        return [Rated(each, good=each.score.reward == 1) for each in known]

    def _check_enough(self, count: int, fix: str) -> None:
        if count < self.config.batch_pairs:
            what = "preference pairs" if self.config.algorithm.paired else "rated answers"
            raise CheckFailed(
                f"only {count} {what}, a step needs {self.config.batch_pairs}", place=str(self.folder.path), fix=fix
            )

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        return {**self.told, **{name: last[name] for name in LOGGED if name in last}}


def run(config: PreferConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train the input checkpoint on preferences; makes a checkpoint."""
    return Prefer(with_answerers(config, inputs), inputs, folder).run()


def with_answerers(config: PreferConfig, inputs: Mapping[str, Path]) -> PreferConfig:
    """The options with the strong and the weak model that `inputs` names: earlier stages, or paths."""
    named = {role: AnswererConfig(model=str(inputs[role])) for role in ("strong", "weak") if role in inputs}
    if not named and config.pairs.prompt_files and config.pairs.strong is None:
        fix = "name both under `pairs` or under the stage's `inputs`, or leave `prompt_files` out"
        raise RecipeError("`prompt_files` are answered by `strong` and `weak`", place="pairs.prompt_files", fix=fix)
    if not named:
        return config
    twice = [role for role in named if getattr(config.pairs, role) is not None]
    if twice:
        raise RecipeError(
            f"pairs.{twice[0]} and inputs.{twice[0]} both name a model", place="inputs", fix="leave one out"
        )
    try:
        return PreferConfig.model_validate(
            dict(config) | {"pairs": PairsConfig.model_validate(dict(config.pairs) | named)}
        )
    except ValidationError as error:
        raise RecipeError(
            error.errors()[0]["msg"], place="inputs", fix="leave `strong` and `weak` out there"
        ) from error
