"""Preference pairs from the model's own answers: a right one against a wrong one to the same task.

Both answers are the policy's own samples, so a pair differs in what matters and not in style; answers whose lengths differ
by more than a cap are not paired, so that "longer" cannot be learnt as "better".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.envs.episode import Episode
from ingot.inference.checksum import weights_checksum
from ingot.model.transformer import Transformer
from ingot.post.answers import PIECE, sample_answers
from ingot.post.config import PreferConfig
from ingot.post.conversations import PoolSource
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import ALONE, Processes
from ingot.post.resumable import Resumable
from ingot.tokens.batch import TokenSequence
from ingot.workspace.config import content_hash
from ingot.workspace.stage import StageFolder


@dataclass(frozen=True)
class Pair:
    """Two answers to one task."""

    chosen: Episode
    rejected: Episode


def sample_pairs(
    model: Transformer, config: PreferConfig, seed: int, processes: Processes = ALONE, folder: StageFolder | None = None
) -> tuple[list[Pair], float]:
    """Pairs of the model's right and wrong answers, and the share of right ones among all samples.

    The model is whole. Each of several processes samples a part of the answers, and all get the same pairs. Answers that the
    stage has saved in its `folder` are not sampled again.
    """
    answers = sample_answers(model, config, seed, processes, folder)
    of_task: dict[str, list[Episode]] = {}
    for each in answers:  # by task, not by place: where questions are few, a task is drawn several times
        of_task.setdefault(each.task.id, []).append(each)
    pairs = [pair for group in of_task.values() for pair in match(group, config.length_gap)[: config.pairs_per_task]]
    known = [each for each in answers if not each.failed]
    return pairs, sum(each.score.reward for each in known) / max(1, len(known))


def match(answers: Sequence[Episode], length_gap: int) -> list[Pair]:
    """Each right answer with the unused wrong one closest in length, within the cap."""
    answers = [each for each in answers if not each.failed]
    wrong = [each for each in answers if each.score.reward == 0 and each.sampled_count > 0]
    pairs = []
    for chosen in (each for each in answers if each.score.reward == 1):
        near = sorted(wrong, key=lambda each: abs(each.sampled_count - chosen.sampled_count))
        if near and abs(near[0].sampled_count - chosen.sampled_count) <= length_gap:
            pairs.append(Pair(chosen, near[0]))
            wrong.remove(near[0])
    return pairs


def pair_sequences(
    pairs: Sequence[Pair],
    reference: Transformer,
    capacity: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[list[TokenSequence]]:
    """For each pair its two sequences, marked by the streams `chosen` and `rejected` (1 on the sampled tokens of one
    half, 0 in the other), with `weight` on those of the chosen half and `reference_logprob` on those of both.

    Log-probabilities that the stage has saved in its `folder` are not computed again.
    """
    halves = [half for pair in pairs for half in (pair.chosen, pair.rejected)]
    texts = [TokenSequence(half.tokens()) for half in halves]
    saved = None
    if folder is not None:
        made_from = content_hash([weights_checksum(reference), capacity, [text.tokens for text in texts]], digits=24)
        saved = Resumable(folder.path / "reference", made_from, PIECE, list, _same, folder.progress.say)
    logprobs = sequence_logprobs(reference, texts, capacity, processes=processes, saved=saved)
    sequences = []
    for index, (half, row) in enumerate(zip(halves, logprobs, strict=True)):
        is_rejected = index % 2
        marks = [float(one) for one in half.sampled()]
        streams = {
            "rejected" if is_rejected else "chosen": marks,
            "chosen" if is_rejected else "rejected": [0.0] * len(row),
        }
        streams["weight"] = [0.0 if is_rejected else float(one) for one in half.sampled()]
        streams["reference_logprob"] = [value * one for value, one in zip(row, half.sampled(), strict=True)]
        sequences.append(TokenSequence(half.tokens(), streams))
    return [sequences[index : index + 2] for index in range(0, len(sequences), 2)]


def _same(_: int, row: list[float]) -> list[float]:
    return row


class PairSource(PoolSource):
    """Steps of pairs. Within a step each pair has its own number in `chosen` and `rejected`, also one that comes twice:
    by a number of the pair itself its two copies would be added up as one longer pair."""

    def draw(self, step: int) -> list[Sequence[TokenSequence]]:
        groups = enumerate(super().draw(step), start=1)
        return [[_numbered(sequence, number) for sequence in group] for number, group in groups]


def _numbered(sequence: TokenSequence, number: int) -> TokenSequence:
    marks = {name: [number * one for one in sequence.streams[name]] for name in ("chosen", "rejected")}
    return TokenSequence(sequence.tokens, {**sequence.streams, **marks})
