"""Distillation from a teacher with another tokenizer: what it reads, what is stamped, exact gradients, students that learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollout
from ingot.envs.task import Task
from ingot.model.transformer import Transformer
from ingot.post.algorithm import GradedSpan, Samples
from ingot.post.algorithms.reverse_kl import ReverseKl
from ingot.post.data.conversations.conversation_file import rendered_conversations
from ingot.post.distill import stage as distill
from ingot.post.distill.config import DistillConfig
from ingot.post.distill.source import StudentSamples
from ingot.post.distill.teacher import LocalTeacher
from ingot.post.distill.teacher_view import PLACES, conversation_dialogue, episode_dialogues, make_views
from ingot.post.policy import chat_format
from ingot.post.processes import ALONE
from ingot.post.rl.pipeline import SampleBatch
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.respell import Respeller
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.losses.divergence import STATES
from ingot.train.losses.gold import REST
from ingot.workspace.errors import CheckFailed, DataError, RecipeError
from ingot.workspace.files import write_jsonl
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, distill_options, episode, nudged, tiny_model, with_logprobs

MakeFolder = Callable[[str], StageFolder]
SHORT: dict[str, Any] = {
    **{"sequence_length": 64, "tasks": SUMS, "prompts_per_step": 8, "group": 2, "max_new_tokens": 6},
    **{"schedule": {"kind": "constant", "warmup": 0.0}, "precision": "float32", "device": "cpu"},
}


def options(**changes: Any) -> DistillConfig:
    return distill_options(SHORT | changes)


@pytest.fixture(scope="module")
def other() -> Tokenizer:
    """A vocabulary of 300 with other merges: numbers up to eleven are single tokens, the words of questions are not."""
    text = "10 11 the numbers 3 + 4 please, user and assistant"
    return train_tokenizer([text] * 40, TokenizerConfig(vocabulary_size=300))


def texts_of(tokenizer: Tokenizer, other: Tokenizer, views: Sequence[Any], tokens: list[int]) -> None:
    """A view says what the student's sequence says up to the end of the answer, and its groups have equal bytes."""
    for view in views:
        end = view.groups[-1].stop
        assert other.decode(view.tokens) == tokenizer.decode(tokens[:end])
        spelt = [
            (
                tokenizer.decode_bytes(tokens[each.start : each.stop]),
                other.decode_bytes(view.tokens[each.other_start : each.other_stop]),
            )
            for each in view.groups
        ]
        assert all(mine == theirs for mine, theirs in spelt)


def test_a_teacher_reads_every_turn_of_an_episode(tokenizer: Tokenizer, other: Tokenizer) -> None:
    """A call, the tool's answer and the answer: both templates are one, so both sides say the same text."""
    mix = TaskMix(TaskMixConfig.model_validate({"weights": {"calculator": 1.0}}))
    (task,) = mix.generate(0, 1, "train")

    def script(played: Episode) -> Message:
        return [each for each in mix.solution(played.task) if each.role == "assistant"][played.turns]

    chat = ChatFormat(tokenizer)
    (played,) = rollout([task], Scripted(script, chat), chat, mix.kinds, limits=Limits(256, 2048))
    assert played.score.correct and played.turns == 2
    (dialogue,) = episode_dialogues(played, {})
    views = make_views(dialogue, Respeller(chat, ChatFormat(other)))
    assert len(views) == 2
    texts_of(tokenizer, other, views, dialogue.tokens)
    covered = [place for view in views for each in view.groups for place in range(each.start, each.stop)]
    assert covered == [place for place, one in enumerate(played.sampled()) if one]
    (same,) = make_views(dialogue, None)
    assert same.tokens == played.tokens() and [each.start for each in same.groups] == covered


def test_a_teacher_reads_the_turns_of_a_file(tokenizer: Tokenizer, other: Tokenizer, tmp_path: Path) -> None:
    """Both modes of thinking, several turns, one of which is not learnt."""
    messages = [
        ("user", "3 + 4?"),
        ("assistant", "7"),
        ("user", "and 10?"),
        ("assistant", "17, or 11"),
        ("user", "no"),
        ("assistant", "so"),
    ]
    rows: list[dict[str, Any]] = [{"messages": [{"role": role, "content": text} for role, text in messages]}]
    rows[0]["messages"][3]["weight"] = 0
    write_jsonl(tmp_path / "chats.jsonl", rows)
    chat = ChatFormat(tokenizer)
    found = rendered_conversations(tmp_path / "chats.jsonl", chat)
    assert len(found) == 2
    for sequence, conversation in found:
        dialogue = conversation_dialogue(sequence, conversation, chat)
        views = make_views(dialogue, Respeller(chat, ChatFormat(other)))
        texts_of(tokenizer, other, views, sequence.tokens)
        covered = [place for view in views for each in view.groups for place in range(each.start, each.stop)]
        assert covered == [place for place, weight in enumerate(sequence.streams["weight"]) if weight]
        assert [len(each.before) for each in dialogue.answers] == [1, 5]
    write_jsonl(tmp_path / "plain.jsonl", [{"text": "a text"}])
    ((sequence, conversation),) = rendered_conversations(tmp_path / "plain.jsonl", chat)
    with pytest.raises(DataError, match="a text without turns"):
        conversation_dialogue(sequence, conversation, chat)


@pytest.fixture
def inputs(tokenizer: Tokenizer, other: Tokenizer, tmp_path: Path) -> dict[str, Path]:
    return {
        "checkpoint": checkpoint_of(tiny_model(other, seed=3), tmp_path / "student"),
        "teacher": checkpoint_of(tiny_model(tokenizer, width=48), tmp_path / "teacher"),
    }


def direct(model: Transformer, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The state before every token, and log p of it, by one pass over the text alone."""
    with torch.no_grad():
        states = model.hidden(torch.tensor([tokens]))[0].roll(1, dims=0)
        return states, model.head(states).log_softmax(-1)[range(len(tokens)), tokens]


@pytest.mark.parametrize("merge", ["observed", "bayesian"])
def test_states_and_log_probabilities_of_groups_are_the_teachers(
    merge: str, inputs: dict[str, Path], make_folder: MakeFolder
) -> None:
    """Through sampling, packing and cutting into micro-batches, against one pass over each text."""
    algorithm = {"algorithm": "gold", "merge": merge}
    stage = distill.Distill(
        options(steps=1, algorithm=algorithm, micro_batch_tokens=128), inputs, make_folder("distill")
    )
    source = stage.source()
    batches, _ = source.batches(0)
    teacher = load_model(inputs["teacher"])
    assert len(batches) > 1
    seen = several = 0
    for batch in batches:
        bases = batch.streams["group_base"] > 0
        assert torch.equal(bases, batch.vectors[PLACES][..., 0] > 0)
        for row, column in bases.nonzero().tolist():
            view, read, first, last = batch.vectors[PLACES][row, column].tolist()
            states, logs = direct(teacher, source.views[view - 1].tokens)
            torch.testing.assert_close(batch.vectors[f"{STATES}/teacher"][row, column], states[read], rtol=0, atol=2e-5)
            rest = logs[first : last + 1].sum() - logs[read]
            torch.testing.assert_close(batch.vectors[REST][row, column], rest, rtol=0, atol=2e-5)
            seen, several = seen + 1, several + (last > first)
        scored = batch.streams["response_mask"] > 0
        assert torch.equal(batch.streams["group_start"][~scored], torch.zeros(int((~scored).sum())))
    assert seen == sum(len(view.groups) for view in source.views) and several > 2


def test_grades_are_sums_of_the_teachers_log_probabilities(inputs: dict[str, Path], make_folder: MakeFolder) -> None:
    """All bytes of an answer are graded, and the grades of an episode add up to the teacher's log p of its answer."""
    config = options(steps=1)
    student, teacher = load_model(inputs["checkpoint"]), load_model(inputs["teacher"])
    respeller = Respeller(chat_format(student), chat_format(teacher))
    graders = {"teacher": LocalTeacher("teacher", teacher, respeller)}
    samples = StudentSamples(student, config, make_folder("distill"), ALONE, student, graders)
    batch, chat = SampleBatch(0, config.temperature, config.max_new_tokens), chat_format(student)
    samples.sampler.draw(batch)
    said = Scripted(lambda _: Message("assistant", "the 3 numbers, please: What 10?"), chat)
    episodes = [*batch.episodes, *rollout([batch.episodes[0].task], said, chat, samples.sampler.mix.kinds)]
    for each, graded in zip(episodes, samples.scores.grades(episodes, 1.0), strict=True):
        sampled = [place for place, one in enumerate(each.sampled()) if one]
        assert [place for one in graded for place in range(one.start, one.stop)] == sampled
        (view,) = make_views(episode_dialogues(each, {})[0], respeller)
        _, logs = direct(teacher, view.tokens)
        prompt = len(respeller.other.prompt(each.task.messages, None, False))
        assert sum(one.logprob for one in graded) == pytest.approx(float(logs[prompt:].sum()), abs=1e-4)
    (graded,) = samples.scores.grades(episodes[-1:], 1.0)
    assert any(one.stop - one.start == 3 for one in graded)
    with pytest.raises(CheckFailed, match="asks for log-probabilities of single tokens, and teacher has others"):
        samples.scores.frozen_logprobs(episodes, 1.0)


def test_a_group_is_one_action_of_the_exact_gradient() -> None:
    """Two tokens of two letters against a teacher of pairs: the expected gradient over all four answers is that of the KL."""
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(2, generator=generator, dtype=torch.float64).requires_grad_()
    second = torch.randn(2, 2, generator=generator, dtype=torch.float64).requires_grad_()
    teacher = torch.randn(4, generator=generator, dtype=torch.float64).log_softmax(0)

    def logs(one: int, two: int) -> tuple[torch.Tensor, torch.Tensor]:
        return first.log_softmax(0)[one], second.log_softmax(1)[one, two]

    answers = [(one, two) for one in range(2) for two in range(2)]
    whole = torch.stack([sum(logs(*each), torch.zeros(())) for each in answers])
    exact = torch.autograd.grad((whole.exp() * (whole - teacher)).sum(), (first, second))
    episodes = [
        with_logprobs(
            episode([("prompt", [5]), ("assistant", list(each))]), [0.0, *(one.item() for one in logs(*each))]
        )
        for each in answers
    ]
    graded = [[GradedSpan(1, 3, float(one))] for one in teacher]
    samples = Samples(episodes, 1, list, list, list, 2, graded=lambda: graded)
    rows, metrics = ReverseKl(algorithm="reverse_kl").advantages(samples)
    assert all(row[0] == 0 and row[1] == row[2] for row in rows)
    expected = torch.zeros((), dtype=torch.float64)
    for each, row, log in zip(answers, rows, whole.detach(), strict=True):
        expected = expected - log.exp() * sum(a * one for a, one in zip(row[1:], logs(*each), strict=True))
    for found, wanted in zip(torch.autograd.grad(expected, (first, second)), exact, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    assert metrics == {"teacher_divergence": pytest.approx(float((whole - teacher).sum() / 8)), "graded_share": 1.0}


def test_with_one_tokenizer_gold_is_gkd(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    teacher = tiny_model(tokenizer, std=0.1)
    inputs = {
        "checkpoint": checkpoint_of(nudged(teacher, 0.05, seed=3), tmp_path / "student"),
        "teacher": checkpoint_of(teacher, tmp_path / "teacher"),
    }
    ends = []
    for name in ("gkd", "gold"):
        folder = make_folder(name)
        distill.run(options(steps=3, algorithm={"algorithm": name, "beta": 0.5}), inputs, folder)
        ends.append(
            (load_model(folder.path).state_dict(), [row["teacher_divergence"] for row in folder.metrics.read()])
        )
    (one, losses), (two, others) = ends
    assert losses == pytest.approx(others, rel=1e-6)
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=0, atol=1e-6)


def answer_logprobs(model: Transformer, task: Task) -> torch.Tensor:
    """log p of the answers 0 to 11, each with the end of its turn, and of all others together."""
    chat = chat_format(model)
    prompt = chat.prompt(task.messages, thinking=False)
    found = []
    for number in range(12):
        tokens = [*chat.tokenizer.encode(str(number)), chat.turn_end]
        _, logs = direct(model, prompt + tokens)
        found.append(logs[len(prompt) :].sum())
    logs = torch.stack(found)
    return torch.cat((logs, torch.log1p(-logs.exp().sum().clamp(max=1 - 1e-6))[None]))


def kl(teacher: Transformer, student: Transformer) -> float:
    """KL(teacher ‖ student) over answers as strings, on facts that no step saw: tokens play no part in it."""
    tasks = TaskMix(SUMS).generate(5, 8, "test")
    pairs = [(answer_logprobs(teacher, task), answer_logprobs(student, task)) for task in tasks]
    return sum(float((one.exp() * (one - two)).sum()) for one, two in pairs) / len(pairs)


@pytest.fixture(scope="session")
def solved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of solved sums."""
    mix, rows = TaskMix(SUMS), []
    for task in mix.generate(0, 64, "train"):
        messages = [*task.messages, *mix.solution(task)]
        rows.append({"messages": [each.to_dict() for each in messages], "thinking": False})
    path = tmp_path_factory.mktemp("sums") / "sums.jsonl"
    write_jsonl(path, rows)
    return str(path)


def taught(
    schooled: StageFolder, other: Tokenizer, solved: str, folder: StageFolder, steps: int, place: Path
) -> dict[str, Path]:
    """A student with another vocabulary that has learnt for some steps from the schooled teacher's distributions."""
    start = checkpoint_of(tiny_model(other, seed=3, std=0.05), place)
    inputs = {"checkpoint": start, "teacher": schooled.path}
    config = options(steps=steps, algorithm="gold", on_policy=0, files=(solved,), optimizer={"lr": 1e-2})
    distill.run(config, inputs, folder)
    return inputs


@pytest.mark.slow
def test_a_student_with_another_vocabulary_comes_near_its_teacher(
    schooled: StageFolder, other: Tokenizer, solved: str, make_folder: MakeFolder, tmp_path: Path
) -> None:
    folder = make_folder("distill")
    inputs = taught(schooled, other, solved, folder, 25, tmp_path / "student")
    teacher = load_model(inputs["teacher"])
    before, after = (kl(teacher, load_model(path)) for path in (inputs["checkpoint"], folder.path))
    assert before > 5 and after < 0.6 * before
    rows = [row["teacher_divergence"] for row in folder.metrics.read()]
    assert sum(rows[-5:]) < 0.5 * sum(rows[:5])


@pytest.mark.slow
def test_own_samples_bring_it_nearer(
    schooled: StageFolder, other: Tokenizer, solved: str, make_folder: MakeFolder, tmp_path: Path
) -> None:
    """Log-probabilities of groups alone: the student's own samples become likelier to its teacher."""
    begun = make_folder("begun")
    inputs = taught(schooled, other, solved, begun, 60, tmp_path / "student")
    worse = checkpoint_of(nudged(load_model(begun.path), 0.05, seed=3), tmp_path / "worse")
    folder = make_folder("distill")
    config = options(steps=40, prompts_per_step=16, group=4, optimizer={"lr": 3e-3})
    distill.run(config, {**inputs, "checkpoint": worse}, folder)
    rows = folder.metrics.read()
    first, last = (sum(row["teacher_divergence"] for row in part) for part in (rows[:8], rows[-8:]))
    assert last < 0.6 * first and all(row["graded_share"] == 1.0 for row in rows)
    teacher = load_model(inputs["teacher"])
    assert kl(teacher, load_model(folder.path)) < kl(teacher, load_model(worse))


def test_reverse_kl_runs_across_tokenizers(inputs: dict[str, Path], make_folder: MakeFolder) -> None:
    folder = make_folder("distill")
    distill.run(options(steps=2), inputs, folder)
    rows = folder.metrics.read()
    assert all(row["graded_share"] == 1.0 and abs(row["ratio_mean"] - 1) < 1e-4 for row in rows)


def test_a_teacher_whose_context_is_too_short_is_an_error(
    tokenizer: Tokenizer, other: Tokenizer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    short = Transformer(tiny_model(other).config.model_copy(update={"context": 16}))
    short.tokenizer = other
    inputs = {
        "checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "student"),
        "teacher": checkpoint_of(short, tmp_path / "teacher"),
    }
    with pytest.raises(CheckFailed, match=r"tokens of the teacher teacher, whose context is 16"):
        distill.run(options(steps=1), inputs, make_folder("distill"))


def test_top_k_refuses_another_tokenizer(inputs: dict[str, Path], make_folder: MakeFolder) -> None:
    with pytest.raises(RecipeError, match=r"top_k compares token by token\n.*algorithm: gold or reverse_kl"):
        distill.run(options(steps=1, algorithm="top_k"), inputs, make_folder("distill"))
