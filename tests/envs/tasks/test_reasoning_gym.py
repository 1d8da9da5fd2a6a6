"""reasoning-gym's families as a task kind: their own answers earn the reward; junk, constants and programs do not."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
import reasoning_gym

from ingot.envs.tasks.reasoning_gym import CHILDREN, ReasoningGym, is_calculation
from ingot.envs.verifiers import children as pools
from ingot.envs.verifiers.errors import NoVerdict, VerifierError
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError, RecipeError
from tests.slow import slow

FAMILIES = [
    *(
        "gcd",
        "lcm",
        "chain_sum",
        "countdown",
        "puzzle24",
        "prime_factorization",
        "fraction_simplification",
        "base_conversion",
    ),
    *(
        "simple_equations",
        "polynomial_equations",
        "power_function",
        "spell_backward",
        "sentence_reordering",
        "number_sorting",
    ),
    *(
        "n_queens",
        "spiral_matrix",
        "binary_matrix",
        "string_insertion",
        "mini_sudoku",
        "zebra_puzzles",
        "knights_knaves",
    ),
    *(
        "shortest_path",
        "course_schedule",
        "coin_flip",
        "game_of_life_halting",
        "simple_integration",
        "calendar_arithmetic",
    ),
]


def reply(content: str) -> list[Message]:
    return [Message(role="assistant", content=content, thinking="")]


@pytest.mark.parametrize("family", ["gcd", "spell_backward", "letter_counting", "countdown", "survo", "acre"])
def test_a_task_is_item_0_of_a_data_set_of_its_seed(family: str) -> None:
    """Also where one data set serves all seeds, and where it cannot (survo, acre)."""
    kind = ReasoningGym(family=family)
    for seed in (3, 77, 10**9):
        assert kind.item(seed) == reasoning_gym.create_dataset(family, seed=seed, size=1)[0]
    assert kind._reseeds == (family not in ("survo", "acre"))


@pytest.mark.parametrize("family", [slow(each) if each == "zebra_puzzles" else each for each in FAMILIES])
def test_their_answers_earn_the_reward_and_junk_does_not(family: str) -> None:
    kind = ReasoningGym(family=family)
    for seed in range(2):
        task = kind.draw(random.Random(seed))
        assert kind.score(task, kind.solution(task)).reward == 1.0
        assert kind.score(task, kind.weaker(task, random.Random(seed))).reward == 0.0
        for junk in ("", " ", "qzxv", "None", "three", task.question, "9" * 20_000):
            assert not kind.score(task, reply(junk)).correct, junk


def test_scorers_that_pay_a_constant_do_not_here() -> None:
    """coin_flip pays 1 for the first digits of the answer, game_of_life_halting for any text if the answer is False."""
    coins, life = ReasoningGym(family="coin_flip"), ReasoningGym(family="game_of_life_halting")
    paid = theirs = 0
    for seed in range(20):
        task = coins.draw(random.Random(seed))
        paid += coins.score(task, reply("0")).correct
        theirs += coins._score(task, "0") == 1.0
        assert coins.score(task, reply(f"{task.answer}0")).correct == ("." in task.answer)
        halting = life.draw(random.Random(seed))
        assert not life.score(halting, reply("perhaps")).correct
        assert life.score(halting, reply(str(halting.answer == "False"))).correct is False
    assert theirs > 10 and paid == 0


def test_puzzle24_needs_the_numbers_of_the_question() -> None:
    kind = ReasoningGym(family="puzzle24")
    for seed in range(3):
        task = kind.draw(random.Random(seed))
        assert kind._score(task, "6+6+6+6") == 1.0 and not kind.score(task, reply("6+6+6+6")).correct
        assert kind.score(task, reply(f"({task.answer})")).correct


def test_partial_scores_and_answers_in_longer_texts_earn_nothing() -> None:
    kind = ReasoningGym(family="gcd")
    task = kind.draw(random.Random(1))
    assert 0 < kind._score(task, f"It is {task.answer}") < 1
    assert not kind.score(task, reply(f"It is {task.answer}")).correct


@pytest.mark.parametrize("family", ["gcd", "letter_counting", "chain_sum", "products", "spell_backward"])
def test_scores_that_are_known_at_once_are_those_of_the_scorer(family: str) -> None:
    """The child is asked for the same answers, right, wrong and odd; in place none is left to it."""
    kind = ReasoningGym(family=family)
    for seed in range(3):
        task = kind.draw(random.Random(seed))
        right = task.answer
        odd = (
            f"+{right}",
            f"0{right}",
            f"{right}.0",
            f"{right}.",
            f"{right},000",
            right.upper(),
            right[::-1],
            f"-{right}",
        )
        for content in (right, f" {right}\n", *odd, right * 2, "NaN", "sNaN", "1e999999999", "9" * 9000, "İ", "x", ""):
            at_once = kind.score_at_once(task, reply(content))
            request = {
                "family": family,
                "settings": {},
                "reseeds": True,
                "seed": task.asked[0],
                "answer": content.strip(),
            }
            theirs = bool(content.strip()) and CHILDREN.ask(request, 60.0).get("score") == 1.0
            assert at_once is not None and at_once.correct == theirs, content
            assert kind.score(task, reply(content)) == at_once


def test_an_answer_on_which_the_scorer_raises_is_wrong_and_counted() -> None:
    kind = ReasoningGym(family="prime_factorization")
    task = kind.draw(random.Random(0))
    found = kind.score(task, reply("two times three"))
    assert (found.reward, found.correct, found.error, found.detail) == (0.0, False, None, {"answers_unreadable": 1.0})
    assert kind.score(task, kind.solution(task)).reward == 1.0


BROKEN = """
import json, signal, sys
print('{"ready": true}', flush=True)
for line in sys.stdin:
    ACTION
    print(json.dumps({"error": "KeyError: 'moves'"}), flush=True)
"""


@pytest.mark.parametrize(
    ("action", "cause"), [("pass", "KeyError: 'moves'"), ("signal.raise_signal(signal.SIGPROF)", "took too long")]
)
def test_a_scorer_that_fails_on_its_own_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: str, cause: str
) -> None:
    """Not a reward of 0, which would say that every answer is wrong."""
    kind = ReasoningGym(family="countdown")
    task = kind.draw(random.Random(0))
    CHILDREN.close()
    monkeypatch.setattr(pools, "WORKER", tmp_path / "worker.py")
    pools.WORKER.write_text(BROKEN.replace("ACTION", action))
    with pytest.raises(VerifierError, match=f"fails on the task's own answer too: {cause}"):
        kind.score(task, reply("1 + 1"))
    CHILDREN.close()


def test_other_scorers_are_left_to_the_child() -> None:
    kind = ReasoningGym(family="countdown")
    task = kind.draw(random.Random(0))
    assert kind.score_at_once(task, reply("1 + 1")) is None
    assert kind.score_at_once(task, reply(task.answer)) is not None


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("string_insertion", "[open({path!r}, 'w')]"),
        ("spiral_matrix", "[open({path!r}, 'w')]"),
        ("n_queens", "[[open({path!r}, 'w')]]"),
        ("countdown", "__import__('pathlib').Path({path!r}).touch() or 1"),
        ("puzzle24", "open({path!r}, 'w')"),
        ("simple_integration", "exec(open({path!r}, 'w'))"),
    ],
)
def test_an_answer_that_is_a_program_is_not_run(family: str, text: str, tmp_path: Path) -> None:
    """These scorers evaluate what the model wrote as Python."""
    kind, path = ReasoningGym(family=family), tmp_path / "made"
    task = kind.draw(random.Random(0))
    program = text.format(path=str(path))
    assert not kind.score(task, reply(program)).correct and not path.exists()
    if family != "simple_integration":
        with suppress(NoVerdict):
            kind._score(task, program)
        assert path.exists(), "without the guard it would have been"


def test_what_may_be_evaluated() -> None:
    for text in ("3*(4+5)", "x**2 + sin(x)", "2*exp(-x)/3 + C", "Abs(x - 1)", "10^3"):
        assert is_calculation(text), text
    for text in ("9**9**9**9", "exit()", "chr(65)", "x.y", "lambda: 1", "[1]", "__a__", "f'{x}'", "10**10**10"):
        assert text == "x.y" or not is_calculation(text), text


def test_neighbouring_seeds_share_no_questions_and_splits_neither() -> None:
    kind = ReasoningGym(family="gcd", settings={"min_value": 2, "max_value": 10_000})
    first, second = ({task.question for task in kind.generate(seed, 60, "train")} for seed in (1, 2))
    assert len(first) == len(second) == 60 and not first & second
    assert not first & {task.question for task in kind.generate(1, 30, "test")}


@pytest.mark.parametrize("family", ["graph_color", "propositional_logic"])
def test_a_family_without_answers_can_be_scored_and_not_imitated(family: str) -> None:
    kind = ReasoningGym(family=family)
    task = kind.draw(random.Random(0))
    assert not kind.score(task, reply("qzxv")).correct
    with pytest.raises(DataError, match="nothing to imitate"):
        kind.solution(task)


def test_wrong_settings_are_explained() -> None:
    with pytest.raises(RecipeError, match=r"no family countdwn[^$]*countdown"):
        ReasoningGym(family="countdwn").draw(random.Random(0))
    with pytest.raises(RecipeError, match=r"settings do not work[^$]*min_colour"):
        ReasoningGym(family="gcd", settings={"min_colour": 3}).draw(random.Random(0))
    with pytest.raises(ValueError, match="seed and size"):
        ReasoningGym(settings={"seed": 3})
