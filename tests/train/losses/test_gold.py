"""The loss across tokenizers against TRL's ULDLoss, loss and gradients of a real step, in several ways to pack and cut it."""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from ingot.post.distill.teacher_view import PLACES, View, with_groups
from ingot.tokens.alignment import align
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.metadata import with_metadata
from ingot.tokens.packing import make_batch
from ingot.train.batches import lengthen, padding_like, split_rows
from ingot.train.losses import score as score_module
from ingot.train.losses.divergence import STATES, FullDivergence
from ingot.train.losses.gold import REST, GoldDivergence, Shared, sorted_distance
from tests.making.stages import stage_folder
from tests.model.tiny import VOCABULARY, config, mixed_config, random_model
from tests.train.toy import loss_and_gradients

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
OTHERS = VOCABULARY + 9
STUDENT = random_model(mixed_config(), scale=0.15).double()
TEACHER = random_model(config(vocabulary_size=OTHERS), seed=5, scale=0.15).double()
PAIRS = list(
    zip(random.Random(1).sample(range(VOCABULARY), 40), random.Random(2).sample(range(OTHERS), 40), strict=True)
)
PROMPT, OTHER_PROMPT = 3, 2


class Pair:
    """One answer in the tokens of both, with made-up byte ends."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.ends, self.other_ends = list[int](), list[int]()
        for block in range(
            rng.randint(2, 5)
        ):  # groups of at most three tokens: TRL takes probabilities below 1e-8 for 1e-8
            for ends in (self.ends, self.other_ends):
                ends += [4 * block + end for end in (*sorted(rng.sample((1, 2, 3), rng.randint(0, 2))), 4)]
        self.tokens = [rng.randrange(VOCABULARY) for _ in range(PROMPT + len(self.ends))]
        self.other_tokens = [rng.randrange(OTHERS) for _ in range(OTHER_PROMPT + len(self.other_ends))]
        self.groups = [each.moved(PROMPT, OTHER_PROMPT) for each in align(self.ends, self.other_ends)]

    def sequence(self, last: bool, temperature: float = 1.0) -> TokenSequence:
        """The student's sequence with what the teacher says at its groups."""
        mask = [float(place >= PROMPT) for place in range(len(self.tokens))]
        plain = TokenSequence(self.tokens, {"response_mask": mask, "sampled_logprob": [0.0] * len(mask)})
        stamped = with_groups(plain, [View(self.other_tokens, self.groups)], 1, last)
        with torch.no_grad():
            states = TEACHER.hidden(torch.tensor([self.other_tokens]))[0].roll(1, dims=0)
            logs = (TEACHER.head(states) / temperature).log_softmax(-1)[range(len(states)), self.other_tokens]
        vectors = {f"{STATES}/t": torch.zeros(len(mask), 24).double(), REST: torch.zeros(len(mask)).double()}
        for place, (view, read, first, final) in enumerate(stamped.vectors[PLACES].tolist()):
            if view:
                vectors[f"{STATES}/t"][place] = states[read]
                vectors[REST][place] = logs[first : final + 1].sum() - logs[read]
        return TokenSequence(self.tokens, stamped.streams, vectors)


TEXTS = [Pair(seed) for seed in range(8)]


def cuts(last: bool, temperature: float) -> dict[str, list[Batch]]:
    texts = [each.sequence(last, temperature) for each in TEXTS]
    return {
        "one row": [make_batch(texts, 300)],
        "three micro-batches": split_rows(make_batch(texts[::-1], 30), 2),
        "a micro-batch each": [lengthen(make_batch([text], 24), 8) for text in texts],
        "as for a GPU": [with_metadata(batch) for batch in split_rows(make_batch(texts, 40), 2)],
        "padding too": [make_batch(texts[:4], 24), make_batch(texts[4:], 24), padding_like(make_batch(texts[:1], 24))],
    }


@cache
def logits_of(student: bool, place: int) -> Tensor:
    text = TEXTS[place]
    return STUDENT(torch.tensor([text.tokens])) if student else TEACHER(torch.tensor([text.other_tokens])).detach()


def peer_loss(
    merge: str, beta: float, weight: float | None, *, hybrid: bool = True, temperature: float = 1.0
) -> Tensor:
    """TRL's loss over all groups. Its "observed" reads logits one position late, so they are given to it one later."""
    from trl.experimental.gold.gold_trainer import ULDLoss

    names = {student: f"both {student}" for student, _ in PAIRS}
    options = SimpleNamespace(
        **{"uld_crossentropy_weight": 0.0, "uld_distillation_weight": 1.0, "uld_student_temperature": temperature},
        **{"uld_teacher_temperature": temperature, "uld_skip_student_eos": False, "uld_skip_teacher_eos": False},
        **{"use_extended_uld": True, "uld_token_merge_strategy": merge, "uld_use_hybrid_loss": hybrid, "beta": beta},
        uld_hybrid_matched_weight=weight,
        uld_hybrid_unmatched_weight=None if weight is None else 1 - weight,
    )
    vocabulary = {names.get(id, f"student {id}"): id for id in range(VOCABULARY)}
    matched = {teacher: names[student] for student, teacher in PAIRS}
    others = {matched.get(id, f"teacher {id}"): id for id in range(OTHERS)}
    peer = ULDLoss(options, SimpleNamespace(get_vocab=lambda: vocabulary), SimpleNamespace(get_vocab=lambda: others))
    total, count = torch.zeros((), dtype=torch.float64), 0
    for place, text in enumerate(TEXTS):
        own, other = logits_of(True, place), logits_of(False, place)
        if merge == "observed":
            own, other = own.roll(1, dims=1), other.roll(1, dims=1)
        offsets = [_offsets(PROMPT, text.ends), _offsets(OTHER_PROMPT, text.other_ends)]
        ids = torch.tensor([text.tokens]), torch.tensor([text.other_tokens])
        labels = [each.clone() for each in ids]
        labels[0][:, :PROMPT], labels[1][:, :OTHER_PROMPT] = -100, -100
        total = total + len(text.groups) * peer(own, other, *labels, *ids, *offsets)
        count += len(text.groups)
    return total / count


def _offsets(prompt: int, ends: list[int]) -> Tensor:
    return torch.tensor([[(0, 0)] * prompt + list(zip([0, *ends], ends, strict=False))])


def same_in_every_cut(
    term: GoldDivergence, last: bool, expected: Tensor, folder: Path, temperature: float = 1.0
) -> None:
    names, parameters = zip(*STUDENT.named_parameters(), strict=True)
    wanted = dict(zip(names, torch.autograd.grad(expected, parameters, retain_graph=True), strict=True))
    for name, batches in cuts(last, temperature).items():
        metrics, found = loss_and_gradients(STUDENT, [term], batches, stage_folder(folder / name), temperature)
        assert metrics["loss"] == pytest.approx(expected.item(), rel=1e-9), name
        for parameter, value in wanted.items():
            assert (found[parameter] - value).abs().max() <= 1e-9 * value.abs().max(), (name, parameter)


@pytest.mark.parametrize(
    ("merge", "beta", "weight"),
    [("bayesian", 0.5, None), ("observed", 0.5, None), ("observed", 0.0, 0.7), ("bayesian", 1.0, 0.2)],
)
def test_the_loss_and_its_gradients_are_those_of_trl(
    merge: str, beta: float, weight: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_module, "CHUNK_LOGITS", 5 * VOCABULARY)  # groups lie across chunks
    several = [each for text in TEXTS for each in text.groups if each.stop - each.start > 1]
    assert len(several) > 8 and any(each.other_stop - each.other_start > 1 for each in several)
    term = GoldDivergence(
        beta=beta,
        matched_weight=weight,
        teachers={"t": TEACHER.head},
        shared={"t": Shared.of(PAIRS, VOCABULARY, OTHERS)},
    )
    same_in_every_cut(term, merge == "bayesian", peer_loss(merge, beta, weight), tmp_path)


def test_without_shared_tokens_it_is_uld(tmp_path: Path) -> None:
    """The sorted distance alone, with temperature: TRL's loss without its hybrid part."""
    expected = peer_loss("bayesian", 0.5, None, hybrid=False, temperature=0.8)
    term = GoldDivergence(teachers={"t": TEACHER.head}, shared={"t": Shared.of([], VOCABULARY, OTHERS)})
    same_in_every_cut(term, True, expected, tmp_path, 0.8)


def test_with_one_vocabulary_it_is_gkd(tmp_path: Path) -> None:
    """Every group is a token, and every token is shared: bit for bit the loss of whole distributions."""
    teacher = random_model(config(), seed=7).double()
    texts = []
    for text in TEXTS:
        mask = [float(place >= PROMPT) for place in range(len(text.tokens))]
        plain = TokenSequence(text.tokens, {"response_mask": mask, "sampled_logprob": [0.0] * len(mask)})
        places = range(PROMPT, len(mask))
        whole = View(text.tokens, [each.moved(PROMPT, PROMPT) for each in align([*places], [*places])])
        with torch.no_grad():
            states = teacher.hidden(torch.tensor([text.tokens]))[0].roll(1, dims=0)
        vectors = {f"{STATES}/t": states, REST: torch.zeros(len(mask)).double()}
        texts.append(TokenSequence(text.tokens, with_groups(plain, [whole], 1, False).streams, vectors))
    heads = {"t": teacher.head}
    results = []
    for name, term in (
        ("gkd", FullDivergence(beta=0.3, teachers=heads)),
        ("gold", GoldDivergence(beta=0.3, teachers=heads, shared={"t": Shared.whole(VOCABULARY)})),
    ):
        results.append(loss_and_gradients(STUDENT, [term], [make_batch(texts, 60)], stage_folder(tmp_path / name)))
    (one, gradients), (two, others) = results
    assert one == two and all(torch.equal(gradients[name], others[name]) for name in gradients)


def test_sorted_distance_by_hand() -> None:
    """Whichever tokens they are: 0.6 against 0.5, 0.3 against 0.3, 0.1 against 0.15, nothing against 0.05."""
    student = torch.tensor([[0.3, 0.1, 0.6], [1.0, 0.0, 0.0]])
    teacher = torch.tensor([[0.05, 0.5, 0.15, 0.3], [0.25, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(sorted_distance(student, teacher), torch.tensor([0.2, 1.5]))
    torch.testing.assert_close(sorted_distance(teacher, student), torch.tensor([0.2, 1.5]))
