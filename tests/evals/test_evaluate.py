"""The task suite with policies whose scores are known, and the stage from checkpoint to scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from examples.evals.vibe import PROMPTS, Vibe
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.config import EvalConfig
from ingot.evals.engine.answer import Answerer, RoutedRequest, measure_together
from ingot.evals.engine.local import LocalAnswerer
from ingot.evals.engine.memory import AnswerMemory, RememberingEngine
from ingot.evals.engine.request import Play, Written
from ingot.evals.evaluate import measure
from ingot.evals.evaluate import run as run_stage
from ingot.evals.scores.scores import load_scores
from ingot.evals.suites.continuations import Continuations
from ingot.evals.suites.needle import Needle
from ingot.evals.suites.tasks import KindConfig, Tasks
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import IngotError, Interrupted
from ingot.workspace.files import read_json, read_jsonl
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder
from tests.envs.script import Reply, Script, wrong
from tests.evals.conftest import World
from tests.making.stages import stage_folder

MIX = TaskMix()
KINDS = (
    KindConfig(kind="arithmetic", count=6, samples=4),
    KindConfig(kind="strings", count=5, samples=4),
    KindConfig(kind="calculator", count=4, samples=4),
    KindConfig(kind="no_think", count=3, samples=4),
)
SUITE = Tasks(kinds=KINDS, temperature=1.0, max_new_tokens=200, kept_samples=2)


class ScriptedAnswerer(Answerer):
    """Plays episodes with a script instead of a model."""

    def __init__(self, policy: Script, chat: ChatFormat) -> None:
        self.policy, self.chat = policy, chat
        self.asked: list[RoutedRequest] = []

    def begin(self, asked: Sequence[RoutedRequest]) -> None:
        self.asked += asked

    def step(self) -> None:
        asked, self.asked = self.asked, []
        plays = [each.request for each in asked if isinstance(each.request, Play)]
        episodes = rollout(
            [play.task for play in plays],
            self.policy,
            self.chat,
            {play.task.kind: play.environment for play in plays},
            drawing=Drawing(plays[0].temperature),
            limits=plays[0].limits,
            between=asked[0].subject.stop.check,
        )
        for each, episode in zip(asked, episodes, strict=True):
            each.give(episode)

    def close(self) -> None:
        """Nothing is left behind."""


def measured(suite: Tasks, policy: Script, world: World, stop: StopSignal | None = None) -> Measured:
    """What the suite finds when a script answers."""
    subject = Subject("script", "chat", stop or StopSignal(), given_tokenizer=world.tokenizer, max_tokens=800)
    folder = StageFolder(Path("unused"), 0, Progress())
    (found,) = measure([suite], subject, ScriptedAnswerer(policy, world.chat), folder, {"": None})
    return found


class Scripted(Script):
    """Plays the conversation that `answer` gives for (task, number of the sample) on the held-out tasks of SUITE."""

    def __init__(self, chat: ChatFormat, answer: Callable[[Task, int], list[Message]]) -> None:
        super().__init__()
        self.turns: dict[tuple[int, ...], list[list[int]]] = {}
        self.used: dict[tuple[int, ...], int] = {}
        for suite in KINDS:
            for task in SUITE.difficulty.kind(suite.kind).generate(0, suite.count, "test"):
                for number in range(suite.samples):
                    messages = [*task.messages, *answer(task, number)]
                    tokens, mask = chat.conversation(messages, task.schemas or None, task.thinking)
                    for start in range(1, len(tokens)):
                        if mask[start] and not mask[start - 1]:
                            end = start + [*mask[start:], 0].index(0)
                            self.turns.setdefault(tuple(tokens[:start]), []).append(tokens[start:end])

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        key = tuple(prompt)
        number = self.used.get(key, 0)
        self.used[key] = number + 1
        turn = self.turns[key][number]
        return Reply(turn, [0.0] * len(turn), [0] * len(turn))


def test_a_solver_scores_one_everywhere(world: World) -> None:
    policy = Scripted(world.chat, lambda task, number: MIX.solution(task))
    found = measured(SUITE, policy, world)
    metrics, samples = found.metrics, found.samples
    names = [f"{measure}/{suite.kind}" for suite in KINDS for measure in ("accuracy", "format")]
    assert [metric.name for metric in metrics] == [
        *names,
        "accuracy/all",
        "format/all",
        "tool_call_success",
        "pass@4/all",
        "pass^4/all",
    ]
    assert {metric.estimate.value for metric in metrics} == {1.0}
    assert {metric.estimate.standard_error for metric in metrics} == {0.0}
    assert [metric.estimate.count for metric in metrics[:9:2]] == [6, 5, 4, 3, 18]
    assert len(samples) == 8 and all(sample.correct for sample in samples)
    assert {"task_id", "kind", "prompt", "completion", "expected", "correct"} == set(samples[0].to_row())
    assert str(samples[0].completion).startswith("<think>")


def test_a_named_suite_has_its_name_before_its_metrics(world: World) -> None:
    suite = SUITE.model_copy(update={"name": "sampled"})
    plain, named = (
        measured(each, Scripted(world.chat, lambda task, number: MIX.solution(task)), world) for each in (SUITE, suite)
    )
    assert [each.name for each in named.metrics] == [f"sampled/{each.name}" for each in plain.metrics]
    assert [each.estimate for each in named.metrics] == [each.estimate for each in plain.metrics]
    assert named.metrics[0].label == f"{plain.metrics[0].label} (sampled)"


def test_a_solver_that_is_right_sometimes(world: World) -> None:
    """Right in the first 3 of 4 samples on arithmetic, never on strings, always on the others."""

    def answer(task: Task, number: int) -> list[Message]:
        right = {"arithmetic": number < 3, "strings": False}.get(task.kind, True)
        return MIX.solution(task) if right else wrong(MIX.solution(task))

    found = measured(SUITE, Scripted(world.chat, answer), world)
    metrics = {metric.name: metric for metric in found.metrics}
    assert metrics["accuracy/arithmetic"].estimate.value == pytest.approx(0.75)
    assert metrics["accuracy/arithmetic"].estimate.standard_error == 0.0  # every task has the same mean
    assert metrics["accuracy/strings"].estimate.value == 0.0
    assert metrics["format/strings"].estimate.value == 1.0
    means = [0.75] * 6 + [0.0] * 5 + [1.0] * 7
    assert metrics["accuracy/all"].estimate.value == pytest.approx(sum(means) / 18)
    assert sorted(metrics["accuracy/all"].units.values()) == sorted(means)
    assert metrics["pass@4/all"].estimate.value == pytest.approx(13 / 18)
    assert metrics["pass^4/all"].estimate.value == pytest.approx(7 / 18)


def stage_config(**changes: dict[str, object] | None) -> EvalConfig:
    """All suites, small; a change replaces the options of a suite, or leaves it out."""
    suites: dict[str, dict[str, object] | None] = {
        "tasks": {"kinds": [{"kind": kind, "count": 3} for kind in ("arithmetic", "calculator", "no_think")]},
        "bits_per_byte": {"sequence_length": 64, "rows": 8},
        "needle": {"lengths": [96], "count": 2},
        "continuations": {"texts": ["def main", "The"], "tokens": 5},
    }
    suites.update(changes)
    if suites["tasks"] is not None:
        suites["tasks"] = {"max_new_tokens": 12, **suites["tasks"]}
    listed = [{"suite": name, **options} for name, options in suites.items() if options is not None]
    return EvalConfig.model_validate({"suites": listed, "slots": 8, "device": "cpu"})


def test_the_stage_writes_scores_and_is_deterministic(world: World, tmp_path: Path) -> None:
    inputs = {"checkpoint": world.checkpoint, "shards": world.shards}
    kinds = [{"kind": kind, "count": 3} for kind in ("arithmetic", "calculator", "no_think")]
    config = stage_config(tasks={"kinds": kinds, "temperature": 1.0})
    written = []
    for name, seed in (("first", 5), ("second", 5), ("third", 6)):
        summary = run_stage(config, inputs, stage_folder(tmp_path / name, seed=seed))
        scores = tmp_path / name / "scores"
        assert summary == {metric: row["value"] for metric, row in read_json(scores / "scores.json").items()}
        written.append([(scores / file).read_bytes() for file in ("scores.json", "tasks.json", "samples.jsonl")])
    assert written[0] == written[1]
    assert written[0][2] != written[2][2]  # another seed samples other replies …
    first, third = load_scores(tmp_path / "first"), load_scores(tmp_path / "third")
    assert all(first[name].units.keys() == third[name].units.keys() for name in first)  # … to the same tasks
    assert set(first) == {
        *(
            f"{measure}/{kind}"
            for measure in ("accuracy", "format")
            for kind in ("arithmetic", "calculator", "no_think")
        ),
        *(
            "accuracy/all",
            "format/all",
            "tool_call_success",
            "bits_per_byte",
            "unigram_bits_per_byte",
            "unigram_token_bits_per_byte",
        ),
        *("needle/96", "needle_exact/96"),
    }
    samples = read_jsonl(tmp_path / "first" / "scores" / "samples.jsonl")
    assert [sample["kind"] for sample in samples] == ["arithmetic"] * 3 + ["calculator"] * 3 + ["no_think"] * 3 + [
        "continuation"
    ] * 2
    assert samples[-1]["prompt"] == "The" and samples[-1]["correct"] is None


def test_suites_can_be_left_out(world: World, tmp_path: Path) -> None:
    config = stage_config(tasks=None, needle=None, continuations=None)
    summary = run_stage(
        config, {"checkpoint": world.checkpoint, "shards": world.shards}, stage_folder(tmp_path, seed=0)
    )
    assert set(summary) == {"bits_per_byte", "unigram_bits_per_byte", "unigram_token_bits_per_byte"}


def test_both_ways_of_thinking_are_measured_where_a_suite_knows_them(world: World, tmp_path: Path) -> None:
    """The others read texts, tokens or given replies: they have one number, written once."""
    more: dict[str, dict[str, object] | None] = {"preferences": {"kinds": [{"kind": "arithmetic", "count": 2}]}}
    kinds = [{"kind": kind, "count": 3} for kind in ("arithmetic", "no_think")]
    config = stage_config(tasks={"kinds": kinds}, **more).model_copy(update={"thinking": "both"})
    inputs = {"checkpoint": world.checkpoint, "shards": world.shards}
    run_stage(config, inputs, stage_folder(tmp_path / "both", seed=0))
    found = set(load_scores(tmp_path / "both"))
    named = {f"{measure}/{kind}" for measure in ("accuracy", "format") for kind in ("arithmetic", "no_think", "all")}
    assert {name for name in found if "think/" in name} == {
        f"{mode}/{n}" for mode in ("think", "no_think") for n in named
    }
    assert {"bits_per_byte", "needle/96", "needle_exact/96", "preference/arithmetic", "margin/arithmetic"} < found
    samples = read_jsonl(tmp_path / "both" / "scores" / "samples.jsonl")
    assert Counter(sample.get("mode") for sample in samples) == {"think": 6, "no_think": 6, None: 2}
    opened = {sample["mode"]: sample["completion"] for sample in samples if sample["kind"] == "no_think"}
    assert opened["think"] != opened["no_think"]  # the prompt of the one opens a thought, of the other closes it


def test_plain_text_has_no_ways_of_thinking(world: World) -> None:
    """A model without a chat template under `thinking: both`: every suite once."""
    subject = Subject("base", "text", StopSignal(), given_tokenizer=world.tokenizer)
    modes = {"think": True, "no_think": False}
    folder = StageFolder(Path("unused"), 0, Progress())
    asked: list[object] = []

    class Silent(Answerer):
        def begin(self, asked_for: Sequence[RoutedRequest]) -> None:
            asked.extend(each.request for each in asked_for)
            for each in asked_for:
                each.give(Written("", None, "stop", 0))

        def step(self) -> None: ...

        def close(self) -> None: ...

    found = measure([Vibe()], subject, Silent(), folder, modes)
    assert len(found) == 1 and len(asked) == len(PROMPTS)


def test_a_limit_holds_for_every_suite(world: World, tmp_path: Path) -> None:
    """Also for those that read no file of questions: kinds, rows, lengths and texts."""
    more: dict[str, dict[str, object] | None] = {"preferences": {"kinds": [{"kind": "arithmetic", "count": 4}]}}
    config = stage_config(**more).model_copy(update={"limit": 2})
    inputs = {"checkpoint": world.checkpoint, "shards": world.shards}
    run_stage(config, inputs, stage_folder(tmp_path / "few", seed=0))
    counts = {name: metric.estimate.count for name, metric in load_scores(tmp_path / "few").items()}
    assert {name: counts[name] for name in ("bits_per_byte", "unigram_bits_per_byte", "preference/arithmetic")} == {
        "bits_per_byte": 2,
        "unigram_bits_per_byte": 2,
        "preference/arithmetic": 2,
    }
    assert counts["needle/96"] == 2 * 3  # of each depth
    one = stage_config(tasks=None, needle=None, bits_per_byte=None).model_copy(update={"limit": 1})
    run_stage(one, inputs, stage_folder(tmp_path / "one", seed=0))
    assert [sample["prompt"] for sample in read_jsonl(tmp_path / "one" / "scores" / "samples.jsonl")] == ["def main"]


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="need a temperature above 0"):
        Tasks(kinds=(KindConfig(kind="strings", samples=2),))
    with pytest.raises(ValueError, match="listed twice"):
        Tasks(kinds=(KindConfig(kind="strings"), KindConfig(kind="strings")))
    with pytest.raises(ValueError, match="96 tokens or more"):
        Needle(lengths=(32,))


def test_a_stop_ends_the_tasks_between_two_steps(world: World) -> None:
    stop = StopSignal()

    class Watched(Scripted):
        """A person presses Ctrl-C during the first step, which writes nothing."""

        steps = 0

        def step(self) -> None:
            self.steps += 1
            stop.request()

    policy = Watched(world.chat, lambda task, number: MIX.solution(task))
    with pytest.raises(Interrupted):
        measured(SUITE, policy, world, stop)
    assert policy.steps == 1 and len(policy.cancelled) == len(policy.asked) > 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"continuations": {"texts": ["The", ""]}}, "prompt 1: the prompt is empty"),
        ({"continuations": {"texts": ["The", "x y " * 400]}}, "prompt 1: .* tokens"),
        ({"needle": {"lengths": [10**6]}}, "a needle text needs 1000000"),
    ],
)
def test_texts_that_do_not_fit_are_found_before_the_tasks(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, dict[str, object] | None],
    problem: str,
) -> None:
    begun: list[object] = []
    monkeypatch.setattr("ingot.inference.engine.Engine.step", lambda *rest: begun.append(rest))
    inputs = {"checkpoint": world.checkpoint, "shards": world.shards}
    with pytest.raises(IngotError, match=problem):
        run_stage(stage_config(**changes), inputs, stage_folder(tmp_path, seed=0))
    assert not begun


def test_texts_are_continued_as_the_model_was_taught(world: World) -> None:
    """A tokenizer that opens every text with a token of its own, as Llama's, and whose files name a second end."""
    backend = Backend.from_str(world.tokenizer.backend.to_str())
    start, end = world.tokenizer.special["<|im_start|>"], world.tokenizer.special["<|im_end|>"]
    backend.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)])
    files = {"generation_config.json": json.dumps({"eos_token_id": [end]}).encode()}
    tokenizer = Tokenizer(backend, None, files)

    class Silent(Script):
        slots, length, version, busy = 4, 64, 0, True

        def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
            return Reply([], [], [])

    policy, stop = Silent(), StopSignal()
    subject = Subject("script", "chat", stop, given_tokenizer=tokenizer)
    engine = RememberingEngine(cast(Engine, policy), AnswerMemory(None))
    measuring = Continuations(texts=("The sum",), tokens=4).measure(subject)
    measure_together([(measuring, subject)], LocalAnswerer(tokenizer, engine, stop))
    assert policy.asked == [backend.encode("The sum", add_special_tokens=True).ids] and policy.asked[0][0] == start
    assert set(policy.samplings[0].stop_tokens) == {tokenizer.special["<|endoftext|>"], end}
