"""Puzzles against reasoning-gym's solvers and scorers, networkx, SymPy and enumeration; and against those who would be paid
without solving them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product
from typing import Any

import networkx
import pytest
import reasoning_gym
from hypothesis import given, settings
from hypothesis import strategies as st
from reasoning_gym.logic.contrib.logic_puzzle import clues as their_clues
from reasoning_gym.logic.contrib.logic_puzzle.sat_utils import neg, one_of, solve_all

from ingot.envs.environment import Environment
from ingot.envs.task import Task, make_task
from ingot.envs.tasks.countdown import Countdown, reaches
from ingot.envs.tasks.graph_paths import GraphPaths
from ingot.envs.tasks.knights_knaves import KnightsKnaves
from ingot.envs.tasks.math_templates import MathTemplates
from ingot.envs.tasks.sorting import Sorting
from ingot.envs.tasks.sudoku import BOXES, Sudoku, completes, show, units
from ingot.envs.tasks.zebra import Zebra
from ingot.tokens.chat import Message

KINDS: dict[str, Environment] = {
    "countdown": Countdown(),
    "hard countdown": Countdown(numbers_min=6, numbers_max=8, largest=100, target_max=1000),
    "sudoku": Sudoku(),
    "sudoku 6": Sudoku(size=6, empty_min=12, empty_max=22),
    "zebra": Zebra(),
    "zebra 4": Zebra(houses=4, attributes=3, minimal=False),
    "sorting": Sorting(),
    "hard sorting": Sorting(count_min=8, count_max=20, digits_max=4, negative=True),
    "graph paths": GraphPaths(),
    "directed graph paths": GraphPaths(directed=True, nodes_min=8, nodes_max=16, steps_min=3),
    "knights and knaves": KnightsKnaves(),
    "more knights and knaves": KnightsKnaves(people_min=5, people_max=6, compound=0.8),
    "math templates": MathTemplates(),
    "hard math templates": MathTemplates(level=5),
}


def reply(content: str) -> list[Message]:
    return [Message(role="assistant", content=content, thinking="")]


@cache
def tasks_of(name: str) -> list[Task]:
    return KINDS[name].generate(3, 20, "train") + KINDS[name].generate(3, 5, "test")


@pytest.mark.parametrize("name", KINDS)
def test_solutions_earn_the_reward_and_weaker_answers_do_not(name: str) -> None:
    kind = KINDS[name]
    for number, task in enumerate(tasks_of(name)):
        right = kind.score(task, kind.solution(task))
        assert (right.reward, right.correct, right.format_ok) == (1.0, True, True), task
        other = kind.score(task, kind.weaker(task, random.Random(number)))
        assert (other.reward, other.correct, other.format_ok) == (0.0, False, True), task


@pytest.mark.parametrize("name", KINDS)
def test_nobody_is_paid_for_nothing(name: str) -> None:
    """An empty answer, the question, its last line, a constant, another task's answer, random digits and letters."""
    kind = KINDS[name]
    tasks = tasks_of(name)
    constants = ["", "0", "1", "2", "yes", "none", "True", "A", "A B", tasks[0].answer, "1 2 3", "knight", "1/2"]
    rng = random.Random(0)
    paid = Counter[str]()
    for task, other in zip(tasks[1:], tasks, strict=False):
        same = task.answer == other.answer
        junk = "".join(rng.choice("0123456789 ABCx+-,/\n") for _ in range(rng.randint(1, 30)))
        for policy, content in [*zip(constants, constants, strict=True), ("question", task.question), ("junk", junk)]:
            paid[policy] += kind.score(task, reply(content)).correct and task.answer != tasks[0].answer
        assert not kind.score(task, reply(task.question.splitlines()[-1])).correct
        assert kind.score(task, reply(other.answer)).correct == same
        assert not kind.score(task, []).correct
    allowed = 0.15 * len(tasks) if name == "math templates" else 0.05 * len(tasks) if "templates" in name else 0
    assert max(paid.values()) <= allowed, paid


@settings(max_examples=40)
@given(text=st.one_of(st.text(max_size=60), st.text("0123456789+-*/()., \n:ABCknightve is a", max_size=40)))
def test_scoring_is_total(text: str) -> None:
    for name, kind in KINDS.items():
        task = tasks_of(name)[0]
        score = kind.score(task, reply(text))
        assert score.correct in (True, False) and score.reward == float(score.correct and score.format_ok)


@pytest.mark.parametrize("name", KINDS)
def test_hostile_answers_are_wrong(name: str) -> None:
    kind = KINDS[name]
    for text in ("(" * 100_000, "9" * 100_000, "1\x00", "\ud800", "A " * 50_000, "9**9**9**9", "1/0", "-" * 5000):
        assert not kind.score(tasks_of(name)[0], reply(text)).correct, text[:20]


@pytest.mark.parametrize("name", KINDS)
def test_splits_share_no_fact_and_draws_do_not_depend_on_the_machine(name: str) -> None:
    kind = KINDS[name]
    again = kind.generate(3, 3, "train")
    assert again == tasks_of(name)[:3] and again != kind.generate(4, 3, "train")
    facts = [{str(task.asked) for task in tasks_of(name) if task.split == split} for split in ("train", "test")]
    assert len(facts[1]) == 5 and not facts[0] & facts[1]


def test_countdown_agrees_with_reasoning_gym() -> None:
    """Our solutions by their scorer, and theirs by our checker."""
    theirs = reasoning_gym.create_dataset("countdown", seed=7, size=15)
    for task in tasks_of("countdown"):
        numbers, target, _ = task.asked
        assert theirs.score_answer(task.answer, {"metadata": {"numbers": list(numbers), "target": target}}) == 1.0
    for item in theirs:
        known = item["metadata"]
        assert reaches(item["answer"], known["numbers"], known["target"])
        assert not reaches(item["answer"], known["numbers"], known["target"] + 1)


def test_countdown_accepts_exactly_what_reaches_the_target() -> None:
    numbers, target = (3, 4, 8), 20
    found = Counter[bool]()
    for first, second, third in permutations(numbers):
        for one, other in product("+-*/", repeat=2):
            for text in (f"({first} {one} {second}) {other} {third}", f"{first} {one} ({second} {other} {third})"):
                exact = re.sub(r"(\d+)", r"Fraction(\1)", text)
                right = bool(eval(exact, {"Fraction": Fraction}) == target)
                found[right] += 1
                assert reaches(text, numbers, target) == right, text
    assert found[True] >= 4 and found[False] > 100
    assert reaches("4 × (8 − 3)", (3, 4, 8), 20)
    for text in (
        "20",
        "3*4+4",
        "3*4+8+0",
        "4*(8-3)+3-3",
        "4*(8-3)=20",
        "4 5",
        "4*(8-3",
        "+",
        "4*(8-03)",
        "4(8-3)",
        "True",
        "4*(8-3)#",
    ):
        assert not reaches(text, numbers, target), text


def test_every_step_of_countdown_is_true_and_uses_what_is_there() -> None:
    for name in ("countdown", "hard countdown"):
        for task in tasks_of(name):
            numbers, target, _ = task.asked
            there = Counter(numbers)
            for step in str(KINDS[name].solution(task)[0].thinking).split(", "):
                first, operator, second, _, result = step.split(" ")
                left, right = Fraction(first), Fraction(second)
                value = {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[operator]
                assert value == int(result), step
                there.subtract((int(first), int(second)))
                assert min(there.values()) >= 0
                there[int(result)] += 1
            assert +there == Counter([target])


def test_the_same_countdown_in_another_order_and_other_words_is_in_one_split() -> None:
    kind = Countdown(numbers_max=3, largest=6, target_max=30)
    splits: dict[tuple[int, ...], set[str]] = {}
    questions = Counter[tuple[int, ...]]()
    for seed in range(1500):
        task = kind.draw(random.Random(seed))
        given = re.findall(r"\d+", task.question)
        target = task.asked[1]
        given.remove(str(target))
        fact = (*sorted(map(int, given)), target)
        splits.setdefault(fact, set()).add(task.split)
        questions[fact] += 1
    assert max(questions.values()) > 5 and all(len(split) == 1 for split in splits.values())
    assert {"train", "test"} == {split for each in splits.values() for split in each}


def _rows(puzzle: Sequence[int], size: int) -> list[list[int]]:
    return [list(puzzle[start : start + size]) for start in range(0, size * size, size)]


@pytest.mark.parametrize(
    ("family", "kind"), [("mini_sudoku", Sudoku()), ("sudoku", Sudoku(size=9, empty_min=30, empty_max=48))]
)
def test_sudoku_agrees_with_reasoning_gym(family: str, kind: Sudoku) -> None:
    theirs = reasoning_gym.create_dataset(family, seed=3, size=5)
    for seed in range(5):
        task = kind.draw(random.Random(seed))
        size, grid, full = task.asked
        assert theirs._count_solutions(_rows(grid, size)) == 1
        known = {"answer": task.answer, "metadata": {"solution": _rows(full, size)}}
        assert theirs.score_answer(kind.solution(task)[0].content, known) == 1.0
    for item in theirs:
        puzzle = tuple(digit for row in item["metadata"]["puzzle"] for digit in row)
        assert completes(item["answer"], puzzle, kind.size)
        assert not completes(show(puzzle, kind.size), puzzle, kind.size)


@pytest.mark.parametrize("name", ["sudoku", "sudoku 6"])
def test_a_sudoku_has_one_solution_among_all_grids(name: str) -> None:
    """Rows are chosen from all permutations, with no solver but a check of columns and boxes."""
    for task in tasks_of(name)[:4]:
        size, grid, full = task.asked
        tall, wide = BOXES[size]

        def grids(
            rows: list[tuple[int, ...]],
            size: int = size,
            grid: tuple[int, ...] = grid,
            tall: int = tall,
            wide: int = wide,
        ) -> Iterator[tuple[int, ...]]:
            if len(rows) == size:
                yield tuple(digit for row in rows for digit in row)
                return
            given = grid[len(rows) * size : (len(rows) + 1) * size]
            above = rows[len(rows) - len(rows) % tall :]
            for row in permutations(range(1, size + 1)):
                if any(known not in (0, digit) for known, digit in zip(given, row, strict=True)):
                    continue
                if any(row[column] == other[column] for other in rows for column in range(size)):
                    continue
                if any(
                    row[column] in other[column // wide * wide :][:wide] for other in above for column in range(size)
                ):
                    continue
                yield from grids([*rows, row])

        assert list(grids([])) == [full]


@pytest.mark.parametrize("name", ["sudoku", "sudoku 6"])
def test_every_line_of_a_sudoku_follows_from_those_before(name: str) -> None:
    for task in tasks_of(name):
        size, grid, full = task.asked
        now = list(grid)
        for line in str(KINDS[name].solution(task)[0].thinking).splitlines():
            row, column, digit = map(int, re.findall(r"\d+", line)[:3])
            cell = (row - 1) * size + column - 1
            assert now[cell] == 0 and full[cell] == digit
            around = {now[other] for _, unit in units(size) if cell in unit for other in unit} - {0}
            if "have" in line:
                assert [int(each) for each in line.split("have ")[1].split()] == sorted(around)
                assert set(range(1, size + 1)) - around == {digit}
            elif "only place" in line:
                name_of_unit = line.split(" in ")[-1]
                (unit,) = (cells for name, cells in units(size) if name == name_of_unit)
                for other in unit:
                    seen = {now[each] for _, cells in units(size) if other in cells for each in cells}
                    assert other == cell or now[other] != 0 or digit in seen
            now[cell] = digit
        assert tuple(now) == full


def _formula(task: Task, leave_out: int = -1) -> list[tuple[str, ...]]:
    """A zebra puzzle as reasoning-gym's clues: an and of ors."""
    solution, clues = task.asked
    houses = tuple(range(1, len(solution[0]) + 1))
    formula: list[Any] = []
    for values in solution:
        for value in values:
            formula += one_of([f"{value} {house}" for house in houses])
        for house in houses:
            formula += one_of([f"{value} {house}" for value in values])
    of: dict[str, Any] = {"same": their_clues.same_house, "left": their_clues.consecutive, "beside": their_clues.beside}
    of["before"] = their_clues.left_of
    for number, (relation, first, second) in enumerate(clues):
        if number == leave_out:
            continue
        if relation in ("at", "not_at"):
            clue = {"at": their_clues.found_at, "not_at": their_clues.not_at}[relation](first, second)
            formula += clue.as_cnf()
        elif relation == "not_same":
            formula += [(neg(f"{first} {house}"), neg(f"{second} {house}")) for house in houses]
        else:
            formula += of[relation](first, second, houses).as_cnf()
    return formula


@pytest.mark.parametrize("name", ["zebra", "zebra 4"])
def test_a_zebra_puzzle_has_one_solution_by_reasoning_gyms_clues_and_a_sat_solver(name: str) -> None:
    for task in tasks_of(name):
        solution, clues = task.asked
        expected = {f"{value} {house}" for values in solution for house, value in enumerate(values, start=1)}
        assert [set(found) for found in solve_all(_formula(task))] == [expected]
        if name == "zebra":  # minimal: without any one of the clues there are more solutions
            assert all(len(solve_all(_formula(task, number))) > 1 for number in range(len(clues)))


def test_every_line_of_a_zebra_puzzle_is_true() -> None:
    for task in tasks_of("zebra 4"):
        solution, _ = task.asked
        right = {value: house for values in solution for house, value in enumerate(values, start=1)}
        left = {value: set(range(1, 5)) for value in right}
        for line in str(KINDS["zebra 4"].solution(task)[0].thinking).splitlines():
            reason, _, cut = line.rpartition(": ")
            value, _, houses = cut.partition(" in ")
            now = set(map(int, houses.split(" or ")))
            assert right[value] in now and now < left[value], line
            if reason.startswith("with "):  # what it supposes has no solution
                (supposed,) = left[value] - now
                assert not solve_all([*_formula(task), (f"{value} {supposed}",)])
            assert not reason.startswith("nothing else")
            left[value] = now
        assert all(left[value] == {right[value]} for value in right)


THEIRS = {"and": "and", "or": "or", "if": "->", "same": "<=>"}


def _their_statement(statement: tuple[Any, ...]) -> tuple[Any, ...]:
    operator, first, second = statement
    if operator == "is":
        return ("telling-truth" if second else "lying", first)
    if operator in ("same", "differ"):
        same = ("<=>", ("telling-truth", first), ("telling-truth", second))
        return same if operator == "same" else ("not", same)
    return (THEIRS[operator], _their_statement(first), _their_statement(second))


@pytest.mark.parametrize("name", ["knights and knaves", "more knights and knaves"])
def test_knights_and_knaves_agree_with_reasoning_gym(name: str) -> None:
    theirs = reasoning_gym.create_dataset("knights_knaves", seed=1, size=30, n_people=3)
    for task in tasks_of(name):
        _, statements, knights = task.asked
        assert theirs.find_solution(tuple(map(_their_statement, statements))) == [knights]
        assert theirs.score_answer(task.answer, {"answer": task.answer}) == 1.0
    kind = KINDS[name]
    for item in theirs:
        known = item["metadata"]
        if known["knight_knave_terms"]["knight"] == "knight":
            asked = (tuple(map(str, known["names"])), (), known["solution"])
            assert kind.score(make_task("knights_knaves", "?", "", asked=asked), reply(item["answer"])).correct


def test_each_line_of_knights_and_knaves_is_true() -> None:
    theirs = reasoning_gym.create_dataset("knights_knaves", seed=1, size=1)
    for task in tasks_of("knights and knaves"):
        names, statements, knights = task.asked
        lines = str(KINDS["knights and knaves"].solution(task)[0].thinking).splitlines()
        assert len(lines) == 2 ** len(names)
        for line in lines:
            case, _, verdict = line.partition(": ")
            supposed = tuple(part.endswith("knight") for part in case.split(", "))
            truths = [theirs.test_satisfiability(_their_statement(each), supposed) for each in statements]
            if "all statements fit" in verdict:
                assert supposed == knights and [bool(truth) for truth in truths] == list(supposed)
                continue
            who = names.index(verdict.split("what ")[1].split(" says")[0])
            assert bool(truths[who]) == ("says is true" in verdict) != supposed[who]


def test_every_assignment_of_knights_is_equally_frequent() -> None:
    drawn = Counter(KnightsKnaves(people_max=3).draw(random.Random(seed)).asked[2] for seed in range(800))
    assert len(drawn) == 8 and max(abs(count - 100) for count in drawn.values()) < 4 * (800 * 7 / 64) ** 0.5


@pytest.mark.parametrize("name", ["graph paths", "directed graph paths"])
def test_graphs_agree_with_networkx(name: str) -> None:
    kind = KINDS[name]
    several = 0
    for task in tasks_of(name):
        asks, edges, start, goal, directed = task.asked
        graph = networkx.DiGraph(edges) if directed else networkx.Graph(edges)
        if asks == "reachable":
            expected = networkx.descendants(graph, start) - {start}
            assert set(task.answer.split()) == expected and expected | {start} < set(graph)
            assert kind.score(task, reply(", ".join(sorted(expected, reverse=True)))).correct
            assert not kind.score(task, reply(f"{task.answer} {start}")).correct
            continue
        shortest = list(networkx.all_shortest_paths(graph, start, goal))
        several += len(shortest) > 1
        for path in networkx.all_simple_paths(graph, start, goal, cutoff=6):
            assert kind.score(task, reply(" -> ".join(path))).correct == (path in shortest)
        wrong = [start, *sorted(set(graph) - {start, goal})[: len(shortest[0]) - 2], goal]
        assert kind.score(task, reply(" ".join(wrong))).correct == (wrong in shortest)
    assert several or directed


@pytest.mark.parametrize("name", ["graph paths", "directed graph paths"])
def test_each_line_of_a_search_is_true(name: str) -> None:
    for task in tasks_of(name):
        _, edges, start, _, directed = task.asked
        graph = networkx.DiGraph(edges) if directed else networkx.Graph(edges)
        seen = {start}
        for line in str(KINDS[name].solution(task)[0].thinking).splitlines():
            head, _, nodes = line.partition(": ")
            if head.startswith("new from "):
                node = head[-1]
                assert node in seen
                new = set(graph[node]) - seen
                assert nodes == (" ".join(sorted(new)) or "none")
                seen |= new
            else:
                assert all(graph.has_edge(second, first) for first, second in pairwise(nodes.split()))


def test_sorting_agrees_with_reasoning_gym() -> None:
    kind = Sorting()
    for family, key in (("number_sorting", "numbers"), ("word_sorting", "words")):
        for item in reasoning_gym.create_dataset(family, seed=2, size=30):
            known = item["metadata"]
            right = list(map(str, known[f"sorted_{key}"]))
            task = make_task("sorting", "?", " ".join(right).lower(), asked=(key, known["direction"], ()))
            assert kind.score(task, reply(", ".join(right))).correct
            assert not kind.score(task, reply(", ".join(right[::-1]))).correct
    words = reasoning_gym.create_dataset("word_sorting", seed=2, size=1)
    for task in tasks_of("sorting"):
        thing, order, items = task.asked
        if thing == "words":
            expected = {"sorted_words": task.answer.split()}
            assert words.score_answer(task.answer.replace(" ", ", "), {"metadata": expected}) == 1.0
        assert Counter(task.answer.split()) == Counter(map(str, items))
        *lines, last = str(kind.solution(task)[0].thinking).splitlines()
        taken = [line.split(": ")[1] for line in (*lines, last)]
        assert taken == task.answer.split()
        for number, line in enumerate(lines):
            left = line.split(" of ")[1].split(": ")[0].split()
            assert Counter(left) + Counter(taken[:number]) == Counter(map(str, items))
            most = min if order == "ascending" else max
            assert taken[number] == str(most(map(int, left)) if thing == "numbers" else most(left))
        parts: list[Any] = [int(part) if thing == "numbers" else part for part in task.answer.split()]
        assert all((one <= other) if order == "ascending" else (one >= other) for one, other in pairwise(parts))
