"""Suites with a judge: readers against the published rules, scores by hand, both orders, and no score without a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.bases.judged import Bench, JudgedSuite, open_judge, read_rating
from ingot.evals.engine.request import Conversation, Generation
from ingot.evals.suites.alpaca import Alpaca
from ingot.evals.suites.arena_hard import ArenaHard, read_verdict
from ingot.evals.suites.mt_bench import MtBench
from ingot.evals.suites.simpleqa import Simpleqa, f1
from ingot.evals.suites.strongreject import Strongreject, harm, read_rubric
from ingot.tokens.chat import Message
from ingot.workspace.errors import CheckFailed, Interrupted, RecipeError
from tests.evals.conftest import World
from tests.evals.suites.asking import last_text, measure, subject, units, values
from tests.making.rows import read_rows, write_rows

JUDGE = {"url": "http://127.0.0.1:1/v1", "model": "fixed-judge"}


class Scripted:
    """A judge that reads what it is told and answers by a rule."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule, self.asked = rule, list[str]()

    def ask(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> str:
        self.asked.append(messages[-1].content)
        return self.rule(messages[-1].content)


@pytest.fixture
def seat(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], str]], Scripted]:
    """Puts a scripted judge in the place of the server."""

    def put(rule: Callable[[str], str]) -> Scripted:
        judge = Scripted(rule)
        monkeypatch.setattr(JudgedSuite, "bench", lambda self: Bench(judge, self.judge.model, 2))
        return judge

    return put


def quoted(text: str, name: str) -> str:
    """What stands between the marks of a name."""
    found = re.search(rf"\[\[BEGIN {name} (\w+)\]\]\n(.*?)\n\[\[END {name} \1\]\]", text, re.DOTALL)
    assert found, (name, text)
    return "\n".join(line.removeprefix("| ") for line in found[2].split("\n"))


def form(text: str) -> str:
    """The name that the reply's JSON must have."""
    return re.findall(r'\{"(\w+)":', text)[-1]


def write(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    file = write_rows(folder / name, rows)
    return (str(file),)


def test_without_a_judge_it_refuses() -> None:
    for suite in (Simpleqa(), Alpaca(), MtBench(), ArenaHard()):
        with pytest.raises(RecipeError, match="none is given"):
            measure(suite, lambda request: "")
    assert open_judge(Simpleqa(judge=JUDGE).judge, "simpleqa", 9).name == "fixed-judge"


RATINGS = {
    "Good. [[7]]": 7,
    "Rating: [[7.5]]": 7.5,
    "[[3]] or [[9]]": 3,
    "It deserves [8]": 8,
    "[2] … [[6]]": 6,
    "Rating: 7": None,
    "[[11]]": None,
    "[[0]]": None,
    "": None,
}


@pytest.mark.parametrize("reply", RATINGS)
def test_ratings_are_read_by_fastchat_s_rule(reply: str) -> None:
    assert read_rating(reply) == RATINGS[reply]


def test_mt_bench(shared_data: Path, seat: Callable[..., Scripted]) -> None:
    """Two rounds; temperatures by category; references for three categories; the mean of both turns."""

    def rule(text: str) -> str:
        return "[[9]]" if "ANSWER 2" in text else "[[4]]"

    judge = seat(rule)
    asked: list[Generation] = []

    def script(request: Generation) -> str:
        asked.append(request)
        return f"reply to {last_text(request)[:30]}"

    found = measure(MtBench(judge=JUDGE), script, subject(shared_data, "chat"))
    scores = values(found)
    assert scores["mt_bench/rating"] == 6.5 and scores["mt_bench/turn_1"] == 4 and scores["mt_bench/turn_2"] == 9
    assert len(asked) == 160 and all(isinstance(request.prompt, Conversation) for request in asked[80:])
    talk = asked[80].prompt.messages  # type: ignore[union-attr]
    assert [message.role for message in talk] == ["user", "assistant", "user"]
    assert talk[1].content == f"reply to {talk[0].content[:30]}"
    temperatures = [request.temperature for request in asked[:80]]
    assert [temperatures.count(value) for value in (0.7, 0.1, 0.0)] == [20, 20, 40]
    assert (
        sum("REFERENCE 1" in text for text in judge.asked) == 60
        and sum("REFERENCE 2" in text for text in judge.asked) == 30
    )
    assert all(metric.label.endswith("(judge fixed-judge)") for metric in found.metrics)
    metric = next(metric for metric in found.metrics if metric.name == "mt_bench/rating")
    assert len(metric.units) == 160 and len(set(metric.clusters.values())) == 80


def test_a_judge_without_verdicts_gives_no_score(shared_data: Path, seat: Callable[..., Scripted]) -> None:
    seat(lambda text: "I like it.")
    with pytest.raises(CheckFailed, match="gave no verdict"):
        measure(MtBench(judge=JUDGE, limit=2), lambda request: "a", subject(shared_data, "chat"))
    seat(lambda text: "[[5]]" if "good" in quoted(text, "ANSWER 1") else "?")
    script = lambda request: "good" if "travel blog" in last_text(request) else "bad"  # noqa: E731
    found = values(measure(MtBench(judge=JUDGE, limit=2), script, subject(shared_data, "chat")))
    assert found["mt_bench/rating"] == 5 and found["mt_bench/failed"] == 0.5


def test_between_two_questions_to_a_judge_of_this_process_the_user_may_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only between two answers, of which each may be asked about six times."""
    about = subject()

    def stop(text: str) -> str:
        about.stop.request()
        return "no verdict"

    judge = Scripted(stop)
    monkeypatch.setattr(JudgedSuite, "bench", lambda self: Bench(judge, "ours", 1, elsewhere=False))
    files = write(tmp_path, "rows.jsonl", [{"instruction": "Say yes.", "output": "yes"}])
    with pytest.raises(Interrupted):
        measure(Alpaca(files=files, judge=JUDGE), lambda request: "yes", about)
    assert len(judge.asked) == 1


def test_a_model_of_ours_is_asked_in_this_process(shared_data: Path, world: World) -> None:
    """Untrained, it gives no verdict; with too little room it cannot even read."""
    judge = {"checkpoint": str(world.checkpoint), "max_tokens": 4096}
    with pytest.raises(CheckFailed, match="gave no verdict in") as caught:
        measure(MtBench(judge=judge, judge_tokens=4, limit=1), lambda request: "a", subject(shared_data, "chat"))
    assert (caught.value.fix or "").startswith("use a model that follows the form")
    with pytest.raises(CheckFailed, match="the engine holds 32"):
        suite = MtBench(judge=judge | {"max_tokens": 32}, judge_tokens=4, limit=1)
        measure(suite, lambda request: "a", subject(shared_data, "chat"))


def test_simpleqa(tmp_path: Path, seat: Callable[..., Scripted]) -> None:
    """A judge that knows the references; F1 as the harmonic mean, its error as the bootstrap's."""
    rows = [{"problem": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(40)]

    def rule(text: str) -> str:
        answer, reference = quoted(text, "ANSWER"), quoted(text, "REFERENCE")
        grade = "C" if "know" in answer else "A" if answer == reference else "B"
        return json.dumps({form(text): grade})

    seat(rule)

    def script(request: Generation) -> str:
        number = int(last_text(request).split()[2])
        return "I do not know." if number % 4 == 0 else str(2 * number) if number % 4 < 3 else "7919"

    found = values(measure(Simpleqa(files=write(tmp_path, "qa.jsonl", rows), judge=JUDGE), script))
    assert found["simpleqa/correct"] == 0.5 and found["simpleqa/not_attempted"] == 0.25
    assert found["simpleqa/correct_given_attempted"] == pytest.approx(2 / 3)
    assert found["simpleqa/f1"] == pytest.approx(2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
    numpy = pytest.importorskip("numpy")
    shares = numpy.array([(float(n % 4 in (1, 2)), float(n % 4 > 0)) for n in range(400)])
    draws = numpy.random.default_rng(0).integers(0, 400, (4000, 400))
    drawn = [2 * shares[row, 0].sum() / (400 + shares[row, 1].sum()) for row in draws]
    assert f1([tuple(pair) for pair in shares]).standard_error == pytest.approx(numpy.std(drawn), rel=0.1)


def test_a_judge_that_writes_correct_does_not_count_as_c(tmp_path: Path, seat: Callable[..., Scripted]) -> None:
    seat(lambda text: "CORRECT")
    files = write(tmp_path, "qa.jsonl", [{"problem": "p", "answer": "a"}])
    with pytest.raises(CheckFailed, match="gave no verdict"):
        measure(Simpleqa(files=files, judge=JUDGE), lambda request: "a")


def test_alpaca_in_both_orders(tmp_path: Path, seat: Callable[..., Scripted]) -> None:
    """A judge that prefers by content counts, one that prefers a position gives ties; an empty answer loses unasked."""
    rows = [{"instruction": f"Task {n}", "input": "", "output": "base " * 5} for n in range(20)]
    suite = Alpaca(files=write(tmp_path, "rows.jsonl", rows), judge=JUDGE)

    def by_content(text: str) -> str:
        first, second = (_rank(quoted(text, name)) for name in ("ANSWER A", "ANSWER B"))
        return json.dumps({form(text): "A" if first > second else "B"})

    seat(by_content)
    script = lambda request: "better " * 8 if int(last_text(request).split()[1]) % 4 else "worse"  # noqa: E731
    found = units(measure(suite, script))["alpaca/win_rate"]
    assert sum(found.values()) == 15
    seat(lambda text: json.dumps({form(text): "A"}))
    assert values(measure(suite, script))["alpaca/win_rate"] == 0.5
    judge = seat(by_content)
    assert values(measure(suite, lambda request: " "))["alpaca/win_rate"] == 0 and not judge.asked


def _rank(answer: str) -> int:
    return ["worse", "base", "better"].index(answer.split()[0])


VERDICTS = {
    "[[A>>B]]": [1, 1, 1],
    "[[A>B]]": [1],
    "so [[a=b]]": [0.5],
    "[[B>A]] no, [[B>>A]]": [0, 0, 0],
    "[B<A]": [1],
    "[[A<<B]]": [0, 0, 0],
    "A>B": None,
    "[[A]]": None,
}


@pytest.mark.parametrize("reply", VERDICTS)
def test_arena_hard_s_verdicts(reply: str) -> None:
    """As show_result.py and gen_judgment.py of arena-hard-auto map them: the last one counts, a clear one three times."""
    assert read_verdict(reply) == VERDICTS[reply]


def test_arena_hard(tmp_path: Path, shared_data: Path, seat: Callable[..., Scripted]) -> None:

    rows = read_rows(shared_data / "arena_hard" / "question_v2.jsonl.gz")[:4]
    answers = [{"uid": row["uid"], "messages": [{}, {"content": {"answer": "baseline"}}]} for row in rows]
    suite = ArenaHard(baseline=write(tmp_path, "base.jsonl", answers), judge=JUDGE, limit=4)
    seat(
        lambda text: "[[A>>B]]" if quoted(text, "ANSWER A") == "mine" else "[[A>B]]"
    )  # clear in one order, against in the other
    found = values(measure(suite, lambda request: "mine", subject(shared_data)))
    assert found == {"arena_hard/win_rate": 0.75}  # three games won, one lost
    with pytest.raises(RecipeError, match="a baseline"):
        measure(ArenaHard(judge=JUDGE), lambda request: "", subject(shared_data))


RUBRICS = {
    "1.a no\n1.b: 0\n2.a …\n2.b: 5\n3.a …\n3.b: 4": (0, 5, 4),
    "1.b 1\n2.b 1\n3.b 1": (1, 1, 1),
    "**1.b:** 0\n**2.b:** (3)\n- 3.b: 2": (0, 3, 2),
    "1.b: 0\n2.b: 6\n3.b: 4": None,
    "1.b: 2\n2.b: 3\n3.b: 4": None,
    "1.b: 0\n2.b: 3": None,
    "": None,
}


@pytest.mark.parametrize("reply", RUBRICS)
def test_the_rubric_s_lines(reply: str) -> None:
    assert read_rubric(reply) == RUBRICS[reply]


def test_strongreject(shared_data: Path, seat: Callable[..., Scripted]) -> None:
    assert harm(0, 5, 5) == {"refused": 0, "harm": 1, "harm_5": 5} and harm(0, 1, 1) == {
        "refused": 0,
        "harm": 0,
        "harm_5": 1,
    }
    assert harm(1, 5, 5) == {"refused": 1, "harm": 0, "harm_5": 0}
    seat(lambda text: "1.b: 1\n2.b: 1\n3.b: 1" if "cannot" in quoted(text, "ANSWER") else "1.b: 0\n2.b: 3\n3.b: 3")
    about = subject(shared_data)
    script = lambda request: "I cannot help with that." if len(last_text(request)) % 2 else "Step one."  # noqa: E731
    judged = measure(Strongreject(judge=JUDGE), script, about)
    plain = measure(Strongreject(), script, about)
    assert set(values(plain)) == {"strongreject/refused"} and plain.metrics[0].label.endswith("(by phrases)")
    assert units(plain)["strongreject/refused"] == units(judged)["strongreject/refused"]
    assert len(units(plain)["strongreject/refused"]) == 313
    refused = values(judged)["strongreject/refused"]
    assert values(judged)["strongreject/harm"] == pytest.approx((1 - refused) * 0.5) and 0.3 < refused < 0.7
    assert [metric.higher_is_better for metric in judged.metrics] == [True, False, False]
