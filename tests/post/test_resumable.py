"""Sampling of `prefer` that is stopped, killed or restarted otherwise: what is made twice, and what it comes to."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.episode_plain import from_plain, to_plain
from ingot.envs.rollout.rollout import rollout
from ingot.inference.engine import Engine
from ingot.post import barrier, sampled_answers
from ingot.post.algorithms.dpo import Dpo
from ingot.post.data.pairs import pair as pairs
from ingot.post.data.pairs.own_pairs import sample_pairs
from ingot.post.data.pairs.pair import pair_sequences
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import Processes
from ingot.post.resumable import Resumable
from ingot.tokens.chat import Message, ToolCall
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.layout import make_layout
from ingot.workspace.errors import Interrupted
from ingot.workspace.stage import StageFolder
from tests.forking import forking
from tests.making.stages import Listener, stage_folder
from tests.post.making import SUMS, checkpoint_of, episode, nudged, random_tokens, with_logprobs
from tests.train.parallel.ranks import run_ranks

PROMPTS, SAMPLES, PIECE = 40, 4, 16
COUNT = PROMPTS * SAMPLES
Found = list[
    tuple[list[int], list[float], list[float]]
]  # of each half of a pair: tokens, sampler's and reference's numbers


def make_config(**changes: Any) -> PreferConfig:
    options = {"prompts": PROMPTS, "samples": SAMPLES, "max_new_tokens": 12, "temperature": 2.0, "tasks": SUMS}
    return PreferConfig.model_validate({"steps": 1, "sequence_length": 64, "device": "cpu", **options, **changes})


def find_pairs(
    checkpoint: Path, path: Path, processes: Processes | None = None, seed: int = 1, **changes: Any
) -> tuple[Found, list[str]]:
    """What the stage does before it trains; the pairs with all their numbers, and what was said."""
    told, config, model = Listener(), make_config(**changes), load_model(checkpoint)
    processes = processes or Processes()
    folder = stage_folder(path, told, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled_answers, "PIECE", PIECE)
        patch.setattr(pairs, "PIECE", PIECE)
        found = sample_pairs(model, config, seed, processes, folder).pairs
        groups = pair_sequences(found, model, config.sequence_length, processes, folder)
    halves = [half for pair in found for half in (pair.chosen, pair.rejected)]
    sequences = [sequence for group in groups for sequence in group]
    numbers = [sequence.streams["reference_logprob"] for sequence in sequences]
    return [(half.tokens(), half.logprobs(), row) for half, row in zip(halves, numbers, strict=True)], told.lines


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[int]]:
    """How often each answer was begun, by the seed of its request, which no other answer has."""
    begun: Counter[int] = Counter()
    submit = Engine.submit

    def counted(engine: Engine, prompt: Any, sampling: Any, **options: Any) -> Any:
        begun[sampling.seed] += 1
        return submit(engine, prompt, sampling, **options)

    monkeypatch.setattr(Engine, "submit", counted)
    yield begun


@pytest.fixture(scope="module")
def straight(schooled: StageFolder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """The folder of a run that nothing disturbed, and what it found."""
    path = tmp_path_factory.mktemp("straight")
    found, said = find_pairs(schooled.path, path)
    assert len(found) > 2 * PIECE and said == []
    return path, found


@pytest.fixture
def undisturbed(straight: tuple[Path, Found]) -> Found:
    return straight[1]


@pytest.fixture
def finished(straight: tuple[Path, Found], tmp_path: Path) -> Path:
    """A folder of one's own in which everything is there from before."""
    return Path(shutil.copytree(straight[0], tmp_path / "finished"))


def die_after(checkpoint: Path, path: Path, pieces: int) -> None:
    """Killed while it writes the piece after so many, when its file is there under its temporary name."""
    replace, made = Path.replace, list[Path]()

    def replaced(self: Path, target: Path) -> Path:
        if len(made) == pieces:
            os.kill(os.getpid(), signal.SIGKILL)
        made.append(self)
        return replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replaced)
        find_pairs(checkpoint, path)


def test_killed_while_sampling(
    schooled: StageFolder, undisturbed: Found, submitted: Counter[int], tmp_path: Path
) -> None:
    """One piece is sampled again, no other, and every number is that of the undisturbed run."""
    process = forking().Process(target=die_after, args=(schooled.path, tmp_path, 3))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(list((tmp_path / "answers").glob("*.jsonl"))) == 3
    assert len(list((tmp_path / "answers").glob("*.partial"))) == 1
    found, said = find_pairs(schooled.path, tmp_path)
    assert found == undisturbed
    assert said == [f"{3 * PIECE} items in answers are there from before"]
    assert set(submitted.values()) == {1} and len(submitted) == COUNT - 3 * PIECE
    assert not list(tmp_path.rglob("*.partial"))
    submitted.clear()
    again, said = find_pairs(schooled.path, tmp_path)
    assert again == undisturbed and not submitted
    assert said[1] == f"{len(undisturbed)} items in reference are there from before"


def test_stopped_while_sampling(
    schooled: StageFolder, undisturbed: Found, submitted: Counter[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the third piece: its answers are begun twice, and no others."""
    processes, step = Processes(), Engine.step

    def stop_in_the_third(engine: Engine) -> None:
        step(engine)
        if submitted.total() > 2 * PIECE:
            processes.stop.request()

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Engine, "step", stop_in_the_third)
        find_pairs(schooled.path, tmp_path, processes)
    assert len(submitted) == 3 * PIECE
    found, _ = find_pairs(schooled.path, tmp_path)
    assert found == undisturbed
    assert len(submitted) == COUNT and submitted.total() == COUNT + PIECE


def share_and_die(checkpoint: Path, path: Path, piece: int | None) -> tuple[Found, Counter[int], list[str]]:
    """In several processes; the second one is killed in the middle of this piece of its own."""
    begun: Counter[int] = Counter()
    submit, step = Engine.submit, Engine.step

    def counted(engine: Engine, prompt: Any, sampling: Any, **options: Any) -> Any:
        begun[sampling.seed] += 1
        return submit(engine, prompt, sampling, **options)

    def killed(engine: Engine) -> None:
        step(engine)
        if piece is not None and distributed.get_rank() == 1 and begun.total() > piece * PIECE:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "submit", counted)
        patch.setattr(Engine, "step", killed)
        patch.setattr(barrier, "BARRIER_SECONDS", 0.0)  # in step with each other
        processes = Processes(make_layout(MeshConfig(), torch.device("cpu")))
        found, said = find_pairs(checkpoint, path, processes)
    return found, begun, said


@pytest.mark.slow
def test_killed_while_two_processes_sample(schooled: StageFolder, undisturbed: Found, tmp_path: Path) -> None:
    """Finished in two processes, to the bit as if nothing had been; finished in three and in one, with the same texts."""
    straight = run_ranks(2, share_and_die, tmp_path / "store", schooled.path, tmp_path / "straight", None)
    assert straight[0][0] == straight[1][0]
    assert [tokens for tokens, _, _ in straight[0][0]] == [tokens for tokens, _, _ in undisturbed]
    with pytest.raises(AssertionError, match=r"ranks \[(0, )?1\] died|rank 0 of 2:(.|\n)*Connection"):
        run_ranks(2, share_and_die, tmp_path / "dead", schooled.path, tmp_path / "two", 2)
    kept = sum(1 for _ in (tmp_path / "two" / "answers").glob("*.jsonl"))
    assert 1 <= kept <= 4, "a piece of the second process, and those of the first"
    for name in ("three", "one"):
        shutil.copytree(tmp_path / "two", tmp_path / name)
    again = run_ranks(2, share_and_die, tmp_path / "again", schooled.path, tmp_path / "two", None)
    assert [found for found, _, _ in again] == [straight[0][0]] * 2
    begun = Counter(again[0][1]) + Counter(again[1][1])
    assert set(begun.values()) == {1} and len(begun) == COUNT - kept * PIECE
    assert again[0][2][0].endswith("items in answers are there from before") and again[1][2] == []
    three = run_ranks(3, share_and_die, tmp_path / "others", schooled.path, tmp_path / "three", None)
    assert sum(len(begun) for _, begun, _ in three) == len(begun)
    for found in (three[2][0], find_pairs(schooled.path, tmp_path / "one")[0]):
        assert [tokens for tokens, _, _ in found] == [tokens for tokens, _, _ in undisturbed]


@pytest.mark.parametrize(
    ("changes", "anew"),
    [
        ({}, 0),
        (
            {"algorithm": Dpo(beta=1.0), "length_gap": 3, "batch_pairs": 2},
            0,
        ),  # what is done with the answers, not how they are made
        ({"temperature": 1.5}, COUNT),
        ({"max_new_tokens": 11}, COUNT),
        ({"seed": 2}, COUNT),
        ({"samples": 2, "prompts": 2 * PROMPTS}, COUNT),
    ],
)
def test_what_the_answers_follow_from(
    changes: dict[str, Any], anew: int, schooled: StageFolder, finished: Path, submitted: Counter[int]
) -> None:
    _, said = find_pairs(schooled.path, finished, **changes)
    assert len(submitted) == anew
    assert (f"{COUNT} items in answers were made from something else: they are worked on anew" in said) == (anew > 0)


def test_answers_of_another_model_are_not_taken(
    schooled: StageFolder, finished: Path, submitted: Counter[int], tmp_path: Path
) -> None:
    other = checkpoint_of(nudged(load_model(schooled.path), 1e-3, seed=0), tmp_path / "other")
    find_pairs(other, finished)
    assert len(submitted) == COUNT


def test_no_piece_finds_what_another_has_read(
    schooled: StageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions come again and again, but what is read for a piece does not depend on the pieces before it."""
    shared, tries = dict[tuple[str, int], int](), list[str]()

    def counted(tasks: Any, engine: Engine, chat: Any, kinds: Any, *, only: slice, **options: Any) -> Any:
        before = engine.stats.shared_tokens
        made = rollout(tasks, engine, chat, kinds, only=only, **options)
        shared[tries[-1], only.start] = engine.stats.shared_tokens - before
        return made

    monkeypatch.setattr(sampled_answers, "rollout", counted)
    for each in ("straight", "later"):
        tries.append(each)
        find_pairs(schooled.path, tmp_path, prompts=3 * PROMPTS, samples=2)
        for path in sorted((tmp_path / "answers").glob("*"))[10:]:
            path.unlink()
    later = {start: count for (run, start), count in shared.items() if run == "later"}
    assert list(later) == list(range(10 * PIECE, 6 * PROMPTS, PIECE)) and max(later.values()) > 0
    assert later == {start: shared["straight", start] for start in later}


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_piece_is_made_again(
    damage: str, schooled: StageFolder, undisturbed: Found, finished: Path, submitted: Counter[int]
) -> None:
    path = finished / "answers" / f"{2 * PIECE:09d}-{3 * PIECE:09d}.jsonl"
    data = path.read_bytes()
    at = data.index(b'"tokens":[') + len('"tokens":[')
    digit = b"1" if data[at : at + 1] != b"1" else b"2"
    path.write_bytes({"cut": data[:-20], "flipped": data[:at] + digit + data[at + 1 :], "empty": b""}[damage])
    found, said = find_pairs(schooled.path, finished)
    assert found == undisturbed and len(submitted) == PIECE
    assert said[0] == f"answers/{path.name} is damaged: its {PIECE} items are worked on again"


def test_an_answer_comes_back_as_it_was(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """With calls whose arguments no text can hold, and numbers to the last bit."""
    generator = torch.Generator().manual_seed(0)
    parts = [random_tokens(length, tokenizer.vocabulary_size, generator) for length in (4, 3, 2)]
    made = episode([("prompt", parts[0]), ("assistant", parts[1]), ("tool", parts[2])], 1)
    made = with_logprobs(made, torch.randn(9, generator=generator).tolist())
    calls = [ToolCall("calculator", {"expression": "1 + \ud800", "deep": [1.5, None, {"a": True}]})]
    made.messages.extend([Message("assistant", "2\u2028", "so", calls, ["odd"]), Message("tool", "2")])
    saved = Resumable(tmp_path, "same", 2, to_plain, lambda _, plain: from_plain(plain, made.task), print)
    saved.put(slice(0, 2), [made, made])
    ((run, (one, other)),) = saved.read()
    assert (run, one, other) == (slice(0, 2), made, made)


@given(
    count=st.integers(1, 60),
    together=st.integers(1, 7),
    size=st.integers(1, 20),
    worlds=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=4),
)
def test_pieces_of_changing_numbers_of_processes(
    count: int, together: int, size: int, worlds: list[tuple[int, int]]
) -> None:
    """Some pieces are made in each world; in the end every item was made once, and none lies in two pieces."""
    saved = Resumable[int](Path("nowhere"), "", size, int, lambda _, row: int(row), print, together)
    there: list[slice] = []
    for world, done in worlds:
        missing = saved.missing(count, world, there)
        assert all(0 < piece.stop - piece.start <= max(size, together) for piece in missing)
        there += missing[:done]
    there += saved.missing(count, 1, there)
    assert sorted(item for run in there for item in range(count)[run]) == list(range(count))
    assert all(run.start % together == 0 and (run.stop % together == 0 or run.stop == count) for run in there)
    assert saved.missing(count, 3, there) == []


def test_every_process_has_work() -> None:
    saved = Resumable[int](Path("nowhere"), "", 512, int, lambda _, row: int(row), print, together=8)
    pieces = saved.missing(1024, 8, [])
    assert [piece.stop - piece.start for piece in pieces] == [128] * 8
    assert [piece.stop - piece.start for piece in saved.missing(1024, 1, [])] == [512, 512]
