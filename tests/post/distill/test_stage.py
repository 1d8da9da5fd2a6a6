"""The distill stage with whole distributions: students reach their teachers, on own samples, given texts and stored answers.

The teacher's answers to single positions are compared with its logits, computed by itself; that a student comes near is measured
with an exact KL over the whole vocabulary, on texts that training never saw.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.model.transformer import Transformer
from ingot.post.data.conversations.sequences import task_conversations
from ingot.post.distill import stage as distill
from ingot.post.distill.config import DistillConfig
from ingot.post.distill.stage import as_given
from ingot.post.distill.top_tokens import with_likeliest
from ingot.post.policy import chat_format
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.device import choose_frozen_precision
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import read_jsonl, write_jsonl
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, distill_options, nudged, tiny_model
from tests.slow import first_fast

MakeFolder = Callable[[str], StageFolder]
SHORT: dict[str, Any] = {
    **{"steps": 30, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 8, "group": 2, "max_new_tokens": 6},
    **{
        "optimizer": {"lr": 3e-3},
        "schedule": {"kind": "constant", "warmup": 0.0},
        "precision": "float32",
        "device": "cpu",
    },
}
GKD = {"algorithm": "gkd", "beta": 0.5}


def options(**changes: Any) -> DistillConfig:
    return distill_options(SHORT | changes)


@pytest.fixture
def pair(tokenizer: Tokenizer, tmp_path: Path) -> dict[str, Path]:
    """A teacher, and a student that is the teacher after an accident."""
    teacher = tiny_model(tokenizer, std=0.1)
    return {
        "checkpoint": checkpoint_of(nudged(teacher, 0.05, seed=3), tmp_path / "student"),
        "teacher": checkpoint_of(teacher, tmp_path / "teacher"),
    }


@pytest.fixture
def texts(tmp_path: Path) -> str:
    """A file of solved sums."""
    mix = TaskMix(SUMS)
    rows = []
    for task in mix.generate(0, 24, "train"):
        messages = [*task.messages, *mix.solution(task)]
        rows.append(
            {"messages": [{"role": each.role, "content": each.content} for each in messages], "thinking": False}
        )
    write_jsonl(tmp_path / "sums.jsonl", rows)
    return str(tmp_path / "sums.jsonl")


def kl(teacher: Transformer, student: Transformer) -> float:
    """KL(teacher ‖ student), the mean over the answers' tokens of solved sums that no step saw."""
    given = task_conversations(SUMS, chat_format(teacher), 20, seed=77)
    total, count = 0.0, 0
    with torch.no_grad():
        for each in given:
            tokens = torch.tensor([each.tokens])
            one, other = (model(tokens)[0].log_softmax(-1) for model in (teacher, student))
            answer = torch.tensor(each.streams["weight"]).roll(-1)  # of the position that predicts a token
            total += float((answer * (one.exp() * (one - other)).sum(-1)).sum())
            count += int(answer.sum())
    return total / count


def fall(inputs: dict[str, Path], folder: StageFolder, config: DistillConfig) -> float:
    """How much of the exact KL is left after the stage."""
    distill.run(config, inputs, folder)
    teacher = load_model(inputs["teacher"])
    return kl(teacher, load_model(folder.path)) / kl(teacher, load_model(inputs["checkpoint"]))


@pytest.mark.parametrize("beta", first_fast([1.0, 0.0]))
def test_a_student_comes_near_its_teacher_on_its_own_samples(
    beta: float, pair: dict[str, Path], make_folder: MakeFolder
) -> None:
    folder = make_folder("distill")
    left = fall(pair, folder, options(algorithm={"algorithm": "gkd", "beta": beta}, temperature=0.9))
    assert left < 0.5
    rows = folder.metrics.read()
    assert rows[-1]["teacher_divergence"] < 0.3 * rows[0]["teacher_divergence"]
    assert all(abs(row["ratio_mean"] - 1) < 1e-4 and row["sampler_divergence"] < 1e-6 for row in rows)


@pytest.mark.parametrize("algorithm", ["gkd", "reverse_kl", {"algorithm": "top_k", "k": 20}, "gold"])
def test_a_teacher_in_bfloat16_says_nearly_the_same(
    algorithm: Any, pair: dict[str, Path], make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where its weights take half the memory; a stage in float32 asks for float32 there, too."""
    said = []
    for dtype in (torch.float32, torch.bfloat16):
        monkeypatch.setattr("ingot.post.distill.stage.choose_frozen_precision", lambda *_, dtype=dtype: dtype)
        folder = make_folder(str(dtype))
        stage = distill.Distill(options(algorithm=algorithm, steps=1), pair, folder)
        stage.run()
        (teacher,) = stage.teachers.values()
        assert teacher.model.embedding.weight.dtype == dtype
        said.append(folder.metrics.read()[0]["teacher_divergence"])
    assert said[1] == pytest.approx(said[0], rel=0.05) and said[0] != said[1]
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert choose_frozen_precision("auto", gpu) == choose_frozen_precision("float8", gpu) == torch.bfloat16
    assert (
        choose_frozen_precision("float32", gpu) == choose_frozen_precision("auto", torch.device("cpu")) == torch.float32
    )


def test_given_texts_and_own_samples_take_turns(pair: dict[str, Path], texts: str, make_folder: MakeFolder) -> None:
    folder = make_folder("distill")
    assert fall(pair, folder, options(algorithm=GKD, on_policy=0.5, files=(texts,))) < 0.5
    own = [row["own_samples"] for row in folder.metrics.read()]
    assert set(own) == {0.0, 1.0} and 8 <= sum(own) <= 22


def test_stored_answers_are_learnt_without_the_teacher(
    pair: dict[str, Path], texts: str, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher is asked once; a stage that begins again on the same folder does not compute anything of it anew."""
    folder = make_folder("distill")
    config = options(algorithm={"algorithm": "top_k", "k": 20}, on_policy=0, files=(texts,))
    stage = distill.Distill(config, pair, folder)
    source = stage.source()
    assert not stage.teachers and len(source.given) == 24
    assert len(read_jsonl(next((folder.path / "teacher").glob("*.jsonl")))) == 1 + 24

    def refuse(*_: object) -> None:
        raise AssertionError("the teacher is asked again")

    monkeypatch.setattr("ingot.post.distill.top_tokens._find", refuse)
    assert fall(pair, folder, config) < 0.5


def test_the_likeliest_tokens_are_those_of_its_logits(tokenizer: Tokenizer, make_folder: MakeFolder) -> None:
    model = tiny_model(tokenizer)
    sequences = [as_given(each) for each in task_conversations(SUMS, chat_format(model), 5, seed=1)]
    for temperature, folder in ((1.0, make_folder("saved")), (0.7, None)):
        found = with_likeliest(model, sequences, 7, 64, temperature, folder=folder)
        again = with_likeliest(model, sequences, 7, 64, temperature, folder=folder)
        for before, after, once_more in zip(sequences, found, again, strict=True):
            with torch.no_grad():
                logs = (model(torch.tensor([before.tokens]))[0, :-1] / temperature).log_softmax(-1)
            answer = torch.tensor(before.streams["response_mask"][1:]) > 0
            values, ids = logs[answer].topk(7)
            torch.testing.assert_close(after.vectors["teacher_logprobs"][1:][answer], values, rtol=0, atol=2e-5)
            assert torch.equal(after.vectors["teacher_tokens"][1:][answer], ids.int())
            assert not after.vectors["teacher_logprobs"][1:][~answer].any()
            assert torch.equal(once_more.vectors["teacher_logprobs"], after.vectors["teacher_logprobs"])


@pytest.mark.parametrize("algorithm", first_fast(["reverse_kl", "gkd", "top_k"], 2))
def test_every_task_is_graded_by_its_own_teacher(
    algorithm: str, tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    """Two teachers, one of them the student itself: its tasks have no divergence, and those of the other have all of it."""
    student = tiny_model(tokenizer)
    path, other = checkpoint_of(student, tmp_path / "a"), checkpoint_of(nudged(student, 0.05, seed=1), tmp_path / "b")
    both = TaskMixConfig.model_validate({"weights": {"no_think": 1, "strings": 1}})

    def first(name: str, one: Path, two: Path) -> float:
        kinds = {"one": ("no_think",), "two": ("strings",)}
        config = options(algorithm=algorithm, steps=1, tasks=both, teachers=kinds, sequence_length=96)
        inputs: Any = {"checkpoint": path, "teacher": {"one": one, "two": two}}
        folder = make_folder(name)
        distill.run(config, inputs, folder)
        return float(folder.metrics.read()[0]["teacher_divergence"])

    none, of_one, of_two, of_both = (first(f"{a.name}{b.name}", a, b) for a, b in product((path, other), repeat=2))
    assert abs(none) < 1e-5
    assert min(of_one, of_two) > 0.02
    assert of_one + of_two == pytest.approx(of_both, rel=1e-4)  # the samples are the same: only their graders differ


def test_options_that_do_not_fit_are_refused(pair: dict[str, Path], make_folder: MakeFolder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reverse_kl learns from the student's own samples"):
        options(on_policy=0.5)
    with pytest.raises(ValueError, match="no step would read them"):
        options(algorithm=GKD, files=("a.jsonl",))
    with pytest.raises(ValueError, match="each of no_think needs exactly one teacher; they have strings"):
        options(teachers={"a": ("strings",)})
    with pytest.raises(RecipeError, match="there are no conversations to learn from besides samples"):
        distill.run(options(algorithm=GKD, on_policy=0), pair, make_folder("none"))
    with pytest.raises(RecipeError, match="the inputs have the teachers a, b; `teachers` has none"):
        two: Any = {**pair, "teacher": {"a": pair["teacher"], "b": pair["teacher"]}}
        distill.run(options(algorithm=GKD), two, make_folder("two"))
