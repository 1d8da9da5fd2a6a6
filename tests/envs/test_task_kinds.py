"""The small task kinds: solutions are right, wrong answers are wrong, splits are disjoint by fact, traces are true."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter, defaultdict

import pytest

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import TASKS, Environment
from ingot.envs.mix import TaskMix
from ingot.envs.task import TEST_SHARE, Split, Task, fact_split, make_task
from ingot.envs.tasks.arithmetic import Arithmetic, work_out
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tasks.no_think import NoThink
from ingot.envs.tasks.small_talk import SmallTalk
from ingot.envs.tasks.strings import Strings
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

SMALL = ("arithmetic", "calculator", "no_think", "small_talk", "strings")  # the others: tests/envs/tasks
KIND_SETS: dict[str, Environment] = {name: TASKS.find(name)() for name in SMALL}
OTHERS: dict[str, Environment] = {
    "hard arithmetic": Arithmetic(digits_min=3, digits_max=9, multiplier_max=9),
    "words": Strings(spelled=False, letters_max=9, alphabet="abcd"),
    "direct calculator": Calculator(thinking=False, digits_min=2),
    "sums": NoThink(operations=("sum",)),
    "direct letters": NoThink(operations=("last", "parity"), spelled=False, letters_max=6),
}


@pytest.mark.parametrize("name", [*KIND_SETS, *OTHERS])
def test_solutions_earn_the_reward_and_weaker_answers_do_not(name: str) -> None:
    tasks = (KIND_SETS | OTHERS)[name]
    splits: tuple[Split, Split] = ("train", "test")
    for seed in range(500):
        for task in tasks.generate(seed, 2, splits[seed % 2]):
            right = tasks.score(task, tasks.solution(task))
            assert (right.reward, right.correct, right.format_ok) == (1.0, True, True), task
            other = tasks.score(task, tasks.weaker(task, random.Random(seed)))
            assert (other.reward, other.correct, other.format_ok) == (0.0, False, True), task


@pytest.mark.parametrize("kind", KIND_SETS)
def test_another_tasks_solution_is_wrong(kind: str) -> None:
    tasks = KIND_SETS[kind]
    first, *others = tasks.generate(5, 40, "train")
    for other in others:
        assert tasks.score(first, tasks.solution(other)).correct == (other.answer == first.answer)


WORDING = "reverse the word spell backwards write what is can you please last letter of which in at end how many are often count"
WORDING += " whats"


def fact_of(task: Task) -> tuple[object, ...]:
    """What a question asks, read from its text alone: numbers without their order, or what is done with which word."""
    text = task.question.lower().replace("'", "")
    if task.kind == "instructions":
        return (text,)
    numbers = re.findall("[0-9]+", text)
    if "odd" in text:
        return "parity", *numbers
    if numbers:
        difference = "-" in text or "minus" in text
        sign = "-" if difference else "*" if re.search("[*]|times|multiply", text) else "+"
        return sign, *(numbers if difference else sorted(numbers, key=int))
    if task.kind == "small_talk":  # its wording is its fact
        return (re.sub("[^a-z ]", "", text),)
    counts = re.search("many|often|count", text)
    operation = "count" if counts else "reverse" if re.search("back|reverse", text) else "last"
    letters = [part for part in re.findall("[a-z]+", text) if part not in WORDING.split()]
    if not letters:  # the word that was drawn is one of the wording's
        return (text,)
    return operation, *(sorted(letters, key=len) if counts else letters)


def test_a_fact_is_in_one_split_in_every_wording_kind_and_difficulty() -> None:
    """The fact is read from the question by other code than the kind's: 37 + 48, "add 48 and 37" and "48+37" are one."""
    found: dict[Split, dict[tuple[object, ...], set[str]]] = {"train": defaultdict(set), "test": defaultdict(set)}
    for tasks in (KIND_SETS | OTHERS).values():
        for seed in range(40):
            for split, facts in found.items():
                for task in tasks.generate(seed, 20, split):
                    facts[fact_of(task)].add(task.question)
    train, test = found["train"], found["test"]
    assert len(train) > 1000 and len(test) > 1000
    assert not train.keys() & test.keys()
    assert len(test["+", "0", "8"] | train["+", "0", "8"]) > 5  # many wordings of one fact were seen
    assert any(len({re.sub("[^0-9]+", " ", each) for each in asked}) > 1 for asked in test.values())  # in both orders


def test_what_is_asked_in_other_words_or_another_order_has_the_same_split() -> None:
    sums = {task.asked: task.split for seed in range(60) for task in Arithmetic().generate(seed, 40, "test")}
    assert any(left != right for left, _, right in sums)
    swapped = [task for seed in range(60) for task in Arithmetic().generate(seed, 40, "train")]
    assert not {(task.asked[2], "+", task.asked[0]) for task in swapped} & sums.keys()
    assert Arithmetic(operators=("-",)).generate(0, 1, "test")[0].split == "test"


def test_the_test_split_is_a_fifth_of_all_facts() -> None:
    facts = [f"{left} + {right}" for left in range(100) for right in range(100)]
    share = sum(fact_split(fact) == "test" for fact in facts) / len(facts)
    assert abs(share - 1 / TEST_SHARE) < 0.015  # 3.75 standard deviations of a fair draw


def test_tasks_are_the_same_on_every_machine() -> None:
    """Written down once: a change of these is a change of every recorded score."""
    config = TaskMixConfig.model_validate(
        {
            "weights": {"arithmetic": 0.4, "strings": 0.3, "calculator": 0.15, "no_think": 0.15},
            "arithmetic": Arithmetic(operators=("+", "-", "*"), digits_min=1, digits_max=2, multiplier_max=5),
            "strings": Strings(operations=("reverse", "count", "last"), letters_min=3, letters_max=5),
            "calculator": Calculator(operators=("+", "-", "*"), digits_min=3, digits_max=4),
            "no_think": NoThink(operations=("sum", "last"), largest=9, letters_min=2, letters_max=4),
        }
    )
    tasks = TaskMix(config).generate(7, 6, "test")
    assert [(task.id, task.question, task.answer) for task in tasks] == GOLDEN


def test_seeds_differ_and_ids_are_distinct() -> None:
    mix = TaskMix()
    first, again, second = (mix.generate(seed, 200, "test") for seed in (1, 1, 2))
    assert first == again
    assert first != second
    assert len({task.id for task in first}) == 200


def test_the_mixture_holds_exact_shares() -> None:
    mix = TaskMix(TaskMixConfig(weights={"arithmetic": 2, "calculator": 1}))
    assert mix.counts(100) == {"arithmetic": 67, "calculator": 33}
    kinds = [task.kind for task in mix.generate(0, 100, "train")]
    assert kinds.count("arithmetic") == 67 and kinds.count("calculator") == 33
    assert kinds != sorted(kinds)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_small_mixtures_one_after_the_other_hold_the_shares_together(count: int) -> None:
    """A kind of which less than one task is due in each still has its turn."""
    weights = {"arithmetic": 0.6, "strings": 0.25, "calculator": 0.1, "no_think": 0.05}
    mix = TaskMix(TaskMixConfig.model_validate({"weights": weights}))
    total = Counter[str]()
    for number in range(100):
        kinds = Counter(task.kind for task in mix.generate(number, count, "train", first=number * count))
        assert kinds.total() == count
        total += kinds
    # Webster's bound for four kinds; to draw each mixture by itself never gives `no_think` any
    assert all(abs(total[kind] - 100 * count * weight) <= (1 + 2 * weight) / 2 for kind, weight in weights.items())


def test_weights_must_make_sense() -> None:
    with pytest.raises(ValueError, match="at least one"):
        TaskMixConfig(weights={"arithmetic": 0})
    with pytest.raises(ValueError, match="larger than digits_max"):
        Arithmetic(digits_min=3)


def test_more_test_tasks_than_questions_is_an_error_and_train_repeats() -> None:
    few = NoThink(operations=("sum",), largest=5)  # 21 facts in some 20 wordings
    with pytest.raises(DataError, match="asked for 500 distinct test tasks"):
        few.generate(0, 500, "test")
    assert len(few.generate(0, 800, "train")) == 800


def test_a_world_without_test_facts_is_an_error() -> None:
    """Two letters out of four: none of the 16 facts is a test fact, so drawing would never end."""
    pairs = next(
        letters
        for letters in map("".join, itertools.combinations("abcdefghijkl", 4))
        if {fact_split(f"reverse {first}{second}") for first in letters for second in letters} == {"train"}
    )
    few = Strings(operations=("reverse",), letters_min=2, letters_max=2, alphabet=pairs)
    assert len(few.generate(0, 20, "train")) == 20
    with pytest.raises(DataError, match="task kind strings: none of 1000 drawn questions is a test question"):
        few.generate(0, 1, "test")


@pytest.mark.parametrize(
    ("question", "answer", "reply", "right"),
    [
        ("Reverse: tree", "e e r t", "eert", True),
        ("Reverse: t r e e", "e e r t", "e e r t", True),
        ("Reverse: tree", "e e r t", "tree", False),
        ("Reverse: tree", "e e r t", "e e r t e", False),
        ("Reverse: tree", "e e r t", "e-e-r-t", False),
        ("How many e: t r e e", "2", "2.", True),
        ("How many e: t r e e", "2", "1 2", False),
        ("Last letter: t r e e", "e", "ee", False),
    ],
)
def test_letters_count_and_blanks_between_them_do_not(question: str, answer: str, reply: str, right: bool) -> None:
    task = make_task("strings", question, answer)
    score = Strings().score(task, [Message(role="assistant", content=reply, thinking="")])
    assert (score.correct, score.reward) == (right, float(right))


def test_arithmetic_answers_and_every_step_are_true() -> None:
    for left in range(100):
        for right in range(100):
            _check_steps(left, "+", right, left + right)
            if left >= right:
                _check_steps(left, "-", right, left - right)
        for right in range(2, 10):
            _check_steps(left, "*", right, left * right)


def _check_steps(left: int, operator: str, right: int, expected: int) -> None:
    trace, answer = work_out(left, operator, right)
    assert answer == str(expected)
    for step in trace.split(" "):
        given, outcome = step.split("=")
        first, second, carry = map(int, re.split(r"[-+*]", given))
        assert max(first, second, carry) <= 9  # single-digit facts only
        value = {"+": first + second + carry, "-": first - second - carry, "*": first * second + carry}[operator]
        result = int(outcome) if operator != "-" else int(outcome.split("-")[0]) - int(outcome.split("-")[1])
        assert value == result, step


def test_string_answers_agree_with_python() -> None:
    kind = Strings(operations=("reverse", "last", "count"), spelled=False, letters_max=6)
    for task in kind.generate(3, 600, "train"):
        operation, *letters = fact_of(task)
        word = str(letters[-1])
        expected = {"reverse": word[::-1], "last": word[-1], "count": str(word.count(str(letters[0])))}[str(operation)]
        assert task.answer == expected, task.question


def test_a_spelled_word_has_blanks_in_question_trace_and_answer() -> None:
    (task,) = Strings(operations=("reverse",)).generate(1, 1, "train")
    (reply,) = Strings().solution(task)
    letters = " ".join(str(task.asked[1]))
    assert letters in task.question and reply.content == letters[::-1]
    assert reply.thinking is not None and reply.thinking.split(" ")[1:8:2] == letters.split(" ")


def test_small_talk_is_answered_by_what_is_meant_not_by_its_words() -> None:
    replies = defaultdict(set)
    for task in SmallTalk().generate(2, 400, "train"):
        replies[task.answer].add(task.question.lower().rstrip("!?."))
    assert len(replies["I do not know that."]) > 100 and len(replies) == 7
    assert {task.answer for task in SmallTalk().generate(2, 100, "test")} == {"I do not know that."}
    every = [question for asked in replies.values() for question in asked]
    assert len(every) == len(set(every))  # no question has two answers
    direct = SmallTalk(direct=1).generate(0, 1, "train")[0]
    assert SmallTalk().solution(direct)[0].thinking is None


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (Arithmetic(), r"whats \d+\+\d+"),
        (Arithmetic(), r"and \d+ \+ \d+\??"),
        (Strings(spelled=False), "[a-z]{4} backwards"),
        (Strings(spelled=False), r"what'?s the last letter of [a-z]{4}\??"),
    ],
)
def test_people_type_in_short_forms(kind: Environment, form: str) -> None:
    """They are asked if that is wanted."""

    def asked(typed: bool) -> int:
        tasks = kind.model_copy(update={"typed": typed}).generate(3, 500, "train")
        return sum(re.fullmatch(form, task.question.lower()) is not None for task in tasks)

    assert asked(typed=True) > 5 and asked(typed=False) == 0


def test_small_talk_is_typed_in_many_ways_and_each_of_them_has_one_answer() -> None:
    """Who are you, how are you and what can you do begin alike: each with its answer, with and without capital and mark."""
    asked = defaultdict(set)
    for task in SmallTalk(refused=0.2).generate(1, 20_000, "train"):
        asked[re.sub("[^a-z ]", "", task.question.lower())].add((task.question, task.answer))
    assert all(len({answer for _, answer in forms}) == 1 for forms in asked.values())
    for text in ("who are you", "how are you", "what are you", "what can you do"):
        capital = text.capitalize()
        assert {text, f"{text}?", capital, f"{capital}?"} <= {question for question, _ in asked[text]}
    assert {"hey who are you", "hi how are you today", "cool thank you", "whats up"} <= set(asked)
    assert not any("[" in question or "|" in question for question in asked)


def test_small_talk_keeps_its_share_of_refusals_though_greetings_are_few() -> None:
    """Greetings are as often as asked, and a plain one is not lost among those with many forms."""
    tasks = SmallTalk(refused=0.35).generate(1, 4000, "train")
    assert abs(sum(task.answer == "I do not know that." for task in tasks) / 4000 - 0.35) < 0.03  # 4 standard errors
    often = Counter(task.question.lower().rstrip("!?.") for task in tasks if task.answer == "Hello! How can I help?")
    assert often["hello"] > 0.1 * often.total()


def test_short_numbers_are_drawn_as_often_as_asked() -> None:
    """One digit each: by chance one sum in sixteen, and the first thing that a person types."""
    for short, expected in ((0.0, 1 / 16), (0.25, 0.25 + 0.75 / 16), (1.0, 1.0)):
        rng = random.Random(3)
        asked = [Arithmetic(digits_min=1, short=short).draw(rng).asked for _ in range(4000)]
        assert abs(sum(left < 10 and right < 10 for left, _, right in asked) / 4000 - expected) < 0.03


def test_what_is_done_in_the_head_is_no_question_for_the_calculator() -> None:
    """Of two digits: 12 * 34 comes, 12 + 34 does not; 12 + 345 does."""
    kind = Calculator(operators=("+", "-", "*"), digits_min=1, digits_max=4, head_digits=2)
    asked = [task.asked for task in kind.generate(1, 2000, "train")]
    lengths = {sign: {tuple(len(str(each)) for each in (a, b)) for a, of, b in asked if of == sign} for sign in "+-*"}
    every = set(itertools.product(range(1, 5), repeat=2))
    assert lengths["*"] == every
    assert lengths["+"] == lengths["-"] == {pair for pair in every if max(pair) > 2}
    with pytest.raises(ValueError, match=r"head_digits \(3\) is not smaller than digits_max \(3\)"):
        Calculator(head_digits=3)


def test_calculator_reward_needs_the_call() -> None:
    tasks = Calculator()
    task = tasks.generate(0, 1, "train")[0]
    call, result, answer = tasks.solution(task)
    without_tool = tasks.score(task, [answer])
    assert (without_tool.reward, without_tool.correct, without_tool.detail["tool_call_success"]) == (0.0, True, 0.0)
    without_answer = tasks.score(task, [call, result])
    assert (without_answer.reward, without_answer.correct, without_answer.detail["tool_call_success"]) == (0, False, 1)


GOLDEN = [
    ("calculator-1941c4b86867", "267 + 9989", "10256"),
    ("strings-298aa7f966de", "reverse p y d i y", "y i d y p"),
    ("arithmetic-4b319ba0e0d5", "Add 28 and 9.", "37"),
    ("arithmetic-83ada812dd8f", "62 - 49 =", "13"),
    ("no_think-00f18b1ca7bb", "6+8", "14"),
    ("strings-79544f47ad2e", "how many z in r z s s", "1"),
]
