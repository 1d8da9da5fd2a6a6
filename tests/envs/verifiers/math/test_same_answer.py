"""The math verifier: published reference answers in many spellings, wrong answers, and answers that are meant to hurt."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingot.envs.environment import TASKS
from ingot.envs.verifiers import children as pools
from ingot.envs.verifiers.children import ENDED, TOO_SLOW
from ingot.envs.verifiers.errors import VerifierError
from ingot.envs.verifiers.math import same_answer as math
from ingot.envs.verifiers.math.same_answer import (
    CHILDREN,
    SAME,
    TOO_LARGE,
    compare,
    extract_answer,
    math_reward,
    same_answer,
    same_at_once,
)
from ingot.tokens.chat import Message
from tests.envs.verifiers.math.spellings import perturbed, spellings
from tests.making.rows import read_rows


def rows(*paths: Path) -> list[dict[str, str]]:
    return [row for path in paths for row in read_rows(path)]


@pytest.fixture(scope="module")
def math_rows(shared_data: Path) -> list[dict[str, str]]:
    """MATH's test problems and answers."""
    folder = shared_data / "math"
    return rows(folder / "math500_dev.jsonl.gz", folder / "math_test_minus_math500.jsonl.gz")


@pytest.fixture(scope="module")
def gsm8k(shared_data: Path) -> dict[str, str]:
    """GSM8K's worked solutions, with the answer of each."""
    found = rows(shared_data / "gsm8k" / "test_dev.jsonl.gz", shared_data / "gsm8k" / "train.jsonl.gz")
    return {row["answer"]: row["answer"].rsplit("####")[1].strip() for row in found}


def refused(answers: list[str]) -> tuple[list[tuple[str, str, str]], int]:
    """Spellings of the answers that are not accepted, and how many there are in all."""
    pairs = [(answer, rule, spelling) for answer in answers for rule, spelling in spellings(answer).items()]
    return [pair for pair in pairs if not same_answer(pair[2], pair[0])], len(pairs)


def accepted(answers: list[str], others: list[str], rng: random.Random) -> tuple[list[tuple[str, str]], int]:
    """Wrong answers that are accepted: one digit changed, and another problem's answer."""
    wrong = [(answer, other) for answer in answers for other in (perturbed(answer, rng), rng.choice(others))]
    pairs = [(answer, other) for answer, other in wrong if other is not None and other != answer]
    return [pair for pair in pairs if same_answer(pair[1], pair[0])], len(pairs)


def test_spellings_of_published_answers(math_rows: list[dict[str, str]], gsm8k: dict[str, str]) -> None:
    rng = random.Random(1)
    answers = [row["answer"] for row in rng.sample(math_rows, 150)]
    answers += rng.sample(sorted(gsm8k.values()), 20)
    wrong, count = refused(answers)
    assert count > 2000 and len(wrong) <= 0.005 * count, wrong


def test_wrong_answers_to_published_problems(math_rows: list[dict[str, str]]) -> None:
    rng = random.Random(2)
    answers = [row["answer"] for row in rng.sample(math_rows, 60)]
    wrong, count = accepted(answers, answers, rng)
    assert count > 90 and not wrong


@pytest.mark.slow
def test_spellings_of_all_published_answers(math_rows: list[dict[str, str]], gsm8k: dict[str, str]) -> None:
    answers = [row["answer"] for row in math_rows]
    answers += sorted(set(gsm8k.values()))
    wrong, count = refused(answers)
    assert count > 70_000 and len(wrong) <= 0.0005 * count, wrong
    wrongly, count = accepted(answers, answers, random.Random(3))
    # by chance another problem's answer is this one in other words: 4 and \$4
    assert count > 9000 and len(wrongly) <= 0.001 * count, wrongly


def test_the_answer_is_found_in_published_solutions(math_rows: list[dict[str, str]], gsm8k: dict[str, str]) -> None:
    """MATH's answers are the last boxes of its solutions; of those with several boxes that differ, none counts."""
    found = [(extract_answer(row["solution"]), row) for row in math_rows]
    several = [row for answer, row in found if answer is None]
    assert len(several) < 0.012 * len(found)
    assert all(row["solution"].count("boxed") + row["solution"].count("fbox") != 1 for row in several)
    assert all(answer == row["answer"].strip() for answer, row in found if answer is not None)
    assert all(extract_answer(solution) == answer for solution, answer in gsm8k.items())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so $x = \boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\boxed{3}, that is \boxed{3}.", "3"),
        (r"\boxed{3} or \boxed{4}", None),
        (r"\boxed{3} wait, \boxed{\text{four}}", None),
        (r"\boxed{3", None),
        (r"\boxed{}", None),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("17 apples\n#### 17", "17"),
        ("#### 17\n#### 18", None),
        ("Final Answer: The final answer is $7$. I hope it is correct.", "$7$"),
        ("The answer is 3.5.", "3.5."),
        ("The answer is 3. So the answer is 4.", None),
        ("The answer isn't clear.", None),
        ("It is 7", None),
        ("", None),
    ],
)
def test_what_is_extracted(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_a_bare_number_counts_only_if_asked_for() -> None:
    assert extract_answer("3 apples and 1,250 pears", last_number=True) == "1,250"
    assert extract_answer("version 1.2.3", last_number=True) is None
    assert extract_answer(r"\boxed{1} of 9", last_number=True) == "1"


@pytest.mark.parametrize(
    ("given", "reference"),
    [
        ("0.75", r"\frac{3}{4}"),
        ("3 1/2", "3.5"),
        (r"3\frac12", r"\frac{7}{2}"),
        ("50", r"50\%"),
        ("90 degrees", r"90^\circ"),
        ("5 apples", "5"),
        ("12 square inches", r"12 \text{ in}^2"),
        ("1,234", "1234"),
        ("2, 1", "1, 2"),
        (r"\{2,1\}", "1,2"),
        (r"2 \text{ or } -2", r"\pm 2"),
        (r"(3,\infty)\cup(-\infty,1)", r"(-\infty,1) \cup (3,\infty)"),
        ("(1,2)", "1 < x < 2"),
        ("x = 3", "3"),
        (r"x \in [1, 2]", "[1,2]"),
        ("(x+1)^2", "x^2+2x+1"),
        (r"\frac{\sqrt 2}{2}", r"\frac{1}{\sqrt{2}}"),
        (r"3.14\pi", r"\frac{157}{50}\pi"),
        ("101_2", "101_{2}"),
        ("2^{10}", "1024"),
        (r"3 \times 10^6", "3,000,000"),
        ("evelyn", r"\text{Evelyn}"),
        ("C", r"\text{(C)}"),
        ("2x - y + 3 = 0", "y = 2x + 3"),
    ],
)
def test_answers_that_are_the_same(given: str, reference: str) -> None:
    assert same_answer(given, reference)


@pytest.mark.parametrize(
    ("given", "reference"),
    [
        ("0.333333", r"\frac{1}{3}"),
        ("3.141593", r"\pi"),
        ("0.5", r"50\%"),
        ("1 2 3 7", "7"),
        ("7, 8", "7"),
        ("5 cm", r"5 \text{ m}"),
        ("101_2", "101_3"),
        ("(2,1)", "(1,2)"),
        ("[1,2]", "(1,2)"),
        ("(1,2)", "1,2"),
        ("1,2,2", "1,2"),
        ("y=3", "x=3"),
        ("31/2", r"3\frac{1}{2}"),
        ("2m", "2"),
        ("12", "12xy"),
        ("12", "12 xy"),
        ("2", r"2 \pi"),
        ("2", "2 pi"),
        ("17+25", "42"),
        (r"\gcd(12,18)", "6"),
        (r"\frac{1}{9004!}", r"\frac{1}{2004!}"),
        ("e^{-50}", "e^{-60}"),
        ("", "0"),
        ("$ $", "0"),
        ("True", "1"),
        ("c", r"\text{(C)}"),
    ],
)
def test_answers_that_are_not_the_same(given: str, reference: str) -> None:
    assert not same_answer(given, reference)


def test_the_reward_is_that_of_one_marked_answer() -> None:
    assert math_reward(r"Half of it: \boxed{0.5}", r"\frac12") == 1.0
    assert math_reward(r"\boxed{1} \boxed{2} \boxed{3}", "2") == 0.0
    assert math_reward("2", "2") == 0.0


HOSTILE = {
    "tower": "9^9^9^9",
    "braced tower": "9^{9^{9}}",
    "power of a power": "(9^{9999})^{9999}",
    "brackets": "(" * 10_000 + "1" + ")" * 10_000,
    "closing brackets": ")" * 10_000,
    "fractions": r"\frac{" * 15 + "1" + "}{2}" * 15,
    "factorial": "100000000!",
    "factorials": "((9!)!)!",
    "recursive macro": r"\def\a{\a\a}\a",
    "NUL": "1\x00",
    "surrogate": "\ud800",
    "megabyte of digits": "1" * 2**20,
    "megabyte of text": "x+" * 2**19,
    "expansion": "(x+y+z+w)^{9999}",
    "integral": r"\int_0^1 x^{x^x} dx",
    "product": r"\prod_{n=1}^{1000000000} n",
    "sum": r"\sum_{n=1}^{1000000000} \frac{1}{n^n}",
    "division by zero": r"\frac{1}{0}",
    "environment": r"\begin{pmatrix}" * 8,
    "code": "__import__('os').system('true')",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_are_wrong(name: str) -> None:
    """Whatever an answer is: it gets 0, never the excuse that the verifier failed."""
    assert compare(HOSTILE[name], "1", seconds=0.5) != SAME
    assert len(children()) <= pools.CHILDREN
    assert same_answer("2x+1", "1+2x")  # and the next pair is compared as if nothing had been


LARGE = {
    "power of a sum": r"(x+1)^{9999}",
    "power of a long sum": "(a+b+c+d+f+g+h)^{60}",
    "its inverse": "(x+1)^{-9999}",
    "product of sums": "(x+y)^{50}(x-y)^{50}(x+2y)^{50}",
    "polynomial division": r"\frac{x^{9999}-1}{x-1}",
    "binomial": r"\binom{10^9}{5\cdot 10^8}",
    "binomial in digits": r"\binom{1000000000}{500000000}",
    "binomial of a letter": r"\binom{x}{5000}",
    "product": r"\prod_{n=1}^{10^8} n",
    "falling factorial": "(1000000)_{500000}",
    "factorial": "(10^5)!",
    "factorial of a sum": "(9999+9999)!",
    "power of powers": "(((99^{99})^{99})^{99})^{99}",
    "root": r"\sqrt[9999]{2^{9999}+1}",
    "sum of roots": r"(\sqrt{2}+\sqrt{3}+\sqrt{5}+\sqrt{7}+\sqrt{11}+\sqrt{13})^{50}",
    "tower": "9^{9^{9^9}}",
    "braces": "{" * 3000 + "1" + "}" * 3000,
    "characters": "x+" * 50_000 + "1",
    "matrix": r"\begin{pmatrix}" + r"1 & 2 \\ " * 5_000 + r"\end{pmatrix}",
    "list": "(" + "x+1," * 100 + "1)",
}


@pytest.mark.parametrize("name", LARGE)
def test_what_would_become_too_large_is_seen_before_it_is_computed(name: str) -> None:
    assert compare(LARGE[name], "x+2", seconds=0.7) == TOO_LARGE, "not too slow"
    assert compare(LARGE[name], LARGE[name]) == SAME, "but for its own reference"


def test_an_environment_counts_what_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps({"problem": "Add one to x.", "answer": "x+1"}))
    kind = TASKS.read({"task": "math", "files": [str(tmp_path / "problems.jsonl")], "thinking": False})
    (task,) = kind.generate(0, 1, "train")
    details = {}
    for name, answer in {
        "too large": LARGE["power of a sum"],
        "long": "x+" * 200 + "1",
        "wrong": "x+2",
        "none": "",
    }.items():
        reply = [Message("assistant", rf"\boxed{{{answer}}}" if answer else "I do not know.")]
        score = kind.score(task, reply)
        assert (score.reward, score.correct, score.error) == (0.0, False, None)
        assert kind.score_at_once(task, reply) in (None, score)
        details[name] = tuple(score.detail.values())
    large, other = (1.0, 1.0, 0.0), (1.0, 0.0, 0.0)
    assert details == {"too large": large, "long": large, "wrong": other, "none": (0.0, 0.0, 0.0)}


def test_an_answer_that_takes_its_time_is_wrong_and_said_to_be_slow() -> None:
    slow = r"\int_0^{1} x^x \sin(x^x) dx"
    assert compare(slow, "x+1", seconds=0.2) == TOO_SLOW
    began = time.monotonic()
    assert compare(slow, "x+1", seconds=0.2) == TOO_SLOW
    assert time.monotonic() - began < 0.1, "it is remembered"
    assert compare("1+x", "x+1") == SAME


STAND_IN = """
import json, os, signal, sys, time
print('{"ready": true}', flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "z" in request["given"] + request["reference"]:
        DO
    print(json.dumps({"same": True, "took": 0.0}), flush=True)
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Processes that find everything the same, but do something else first where a z is in it."""
    monkeypatch.setattr(pools, "WORKER", tmp_path / "worker.py")

    def write(action: str) -> None:
        CHILDREN.close()
        math._compared.cache_clear()
        math._fault_of.cache_clear()
        pools.WORKER.write_text(STAND_IN.replace("DO", action))

    yield write
    write("pass")


@pytest.mark.parametrize(
    ("action", "cause"),
    [
        ("os.abort()", ENDED),
        ("raise MemoryError", ENDED),
        ("signal.raise_signal(signal.SIGPROF)", TOO_SLOW),
        ("os.kill(os.getpid(), signal.SIGKILL)", ENDED),
    ],
)
def test_an_answer_that_ends_the_process_is_wrong(stand_in: Callable[[str], None], action: str, cause: str) -> None:
    stand_in(action)
    assert compare("x+z", "x+1") == cause
    with pytest.raises(VerifierError, match=f"the reference answer cannot be compared: {cause}"):
        compare("x+1", "x+z")
    assert compare("x+1", "1+x") == SAME, "another process has begun"


def test_what_somebody_kills_is_asked_once_more(stand_in: Callable[[str], None], tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    stand_in(f"os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w'), os.kill(os.getpid(), signal.SIGKILL))")
    assert compare("x+z", "x+1") == SAME and mark.exists()


def test_a_process_that_waits_is_the_machines_fault(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds of an answer are the processor's."""
    stand_in("time.sleep(0.2)")
    assert compare("x+z", "x+1", seconds=0.05) == SAME
    monkeypatch.setattr(pools, "BUSY", 1)
    with pytest.raises(VerifierError, match="the machine is busy"):
        compare("x+2z", "x+1", seconds=0.05)


def test_an_answer_beside_a_reference_that_cannot_be_compared_is_not_to_blame() -> None:
    reference = r"(x+1)^{9999}+2"
    assert compare(f"${reference}$", reference) == SAME
    for answer in ("x+1", r"(x+1)^{9998}"):
        with pytest.raises(VerifierError, match="the reference answer cannot be compared: too large"):
            compare(answer, reference)
    with pytest.raises(VerifierError, match="the reference answer cannot be compared: too large"):
        compare("(1, x)", rf"(1, {reference})")


@pytest.mark.parametrize(
    "text",
    [r"\boxed{" * 150_000, "#" * 2**20, "\n" * 2**20, "answer is " * 2**17, " " * 2**20, r"\boxed" + " " * 2**20],
)
def test_hostile_replies_give_no_answer(text: str) -> None:
    assert math_reward(text, "1") == 0.0


def children() -> list[int]:
    """Processes of the verifier that this process has started and that are alive."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = status.read_text().rpartition(")")[2].split()[:2]
            command = status.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == os.getpid() and state != "Z" and b"worker.py\0math" in command:
            found.append(int(status.parent.name))
    return found


def test_a_child_that_dies_is_replaced_and_none_is_left() -> None:
    assert same_answer("k+k", "2k")
    for child in children():
        os.kill(child, signal.SIGKILL)
    assert same_answer("k+k+k", "3k")
    CHILDREN.close()
    assert children() == []


def test_many_threads_share_the_children() -> None:
    pairs = [(f"(x+{number})^2", f"x^2+{2 * number}x+{number**2 + number % 2}") for number in range(1, 17)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda pair: same_answer(*pair), pairs))
    assert found == [number % 2 == 0 for number in range(1, 17)]
    assert len(children()) <= pools.CHILDREN


def test_a_forked_process_starts_its_own_children() -> None:
    assert same_answer("m+m", "2m")
    before = children()
    forked = os.fork()
    if forked == 0:
        right = same_answer("m+m+m", "3m") and len(children()) == 1
        CHILDREN.close()
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert children() == before and same_answer("y+y", "2y")


def test_a_verifier_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    CHILDREN.close()
    monkeypatch.setattr(pools, "WORKER", Path("no_such_worker.py"))
    with pytest.raises(VerifierError, match=r"did not start[^$]*\[envs\]"):
        same_answer("t+t", "2t")


def test_a_reference_over_the_limits_is_a_fault_unless_it_is_given_as_it_is() -> None:
    reference = "+".join(f"x_{{{number}}}" for number in range(60))
    assert same_answer(f"${reference}$", reference)
    assert same_answer("9^{9^{9}}", "$9^{9^{9}}$")
    for given in ("1", reference + "+1"):
        with pytest.raises(VerifierError, match="over the size limits"):
            same_answer(given, reference)
    assert not same_answer(reference + reference, reference)


def test_what_is_known_at_once_is_what_is_found_out() -> None:
    """Plain numbers and equal spellings need no library; everything else is left to it."""
    texts = [
        "42",
        "-42",
        "42.0",
        "042",
        "1,000",
        "1000",
        "0.5",
        "50%",
        r"\frac{1}{2}",
        "x+1",
        "",
        "seven",
        "1/2",
        r"\$42",
        "2^3",
        "8",
    ]
    for given in texts:
        for reference in texts[:-6]:
            known = same_at_once(given, reference)
            if known is not None:
                assert known == same_answer(given, reference), (given, reference)
    assert [same_at_once("42", "42.0"), same_at_once("42", "43"), same_at_once("6*7", "42")] == [True, False, None]
