"""Graph walks: a long list of edges, and a question that needs many of them (format of openai/graphwalks, 2025).

    bfs        the nodes that a breadth-first search reaches after exactly so many steps
    parents    the nodes with an edge to a given one

The answer is a set of nodes on the last line, `Final Answer: [a, b]`, scored by the F1 of sets: `strict` reads the last line
only, `flexible` the last line that has an answer. Graphs are made for each length in tokens of the model; `files` takes the
published rows (prompt, answer_nodes, problem_type) instead. A question without nodes to find scores 0, as in lm-eval; those
that are made here have some.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ingot.envs.rows import fingerprints, need
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.request import Generation, Question
from ingot.evals.scores.scores import Metric, Sample, metric_of_units, spread
from ingot.workspace.errors import RecipeError

INTRODUCTION = """\
Below are the edges of a directed graph, one a line, from the first node to the second, and then an operation. Carry it out and \
give the set of nodes that it results in. A breadth-first search at a depth gives the nodes whose shortest path from the start \
has exactly that many edges; the start is none of them. The parents of a node are the nodes with an edge to it, without itself.

Example:
apple -> pear
pear -> plum
apple -> plum
plum -> fig
Operation: breadth-first search from apple at depth 2.
From apple one edge leads to pear and plum, and from there another one leads to fig.
Final Answer: [fig]
"""
ENDING = (
    "End your answer with one line: Final Answer: [first, second, …], or Final Answer: [] if there is no such node."
)
ANSWER = re.compile(r"Final Answer:\s*\[(.*)\]")
EDGES_PER_NODE = 3
EDGE_TOKENS = 8  # that an edge takes at least: two names of ten digits
ATTEMPTS = 100
Operation = Literal["bfs", "parents"]


@dataclass(frozen=True)
class GraphQuestion:
    """A question and the nodes that answer it."""

    id: str
    kind: str
    prompt: str
    nodes: frozenset[str]

    def sample(self, text: str) -> Sample:
        """What of it and its answer people read."""
        right = set_f1(last_line_answer(text), self.nodes) == 1
        return Sample(self.id, f"graph_walks/{self.kind}", self.prompt, text, ", ".join(sorted(self.nodes)), right)


class GraphWalks(Suite):
    """Breadth-first searches and parents in a long list of edges."""

    lengths: tuple[int, ...] = Field((2048,), min_length=1, description="tokens of the question, one score each")
    count: int = Field(50, ge=1, description="questions for each length and operation; --limit cuts it")
    depths: tuple[int, ...] = Field((1, 2, 3), min_length=1, description="depths of breadth-first searches")
    most_nodes: int = Field(16, ge=1, description="nodes of an answer at most")
    files: tuple[str, ...] = Field((), description="published rows, instead of graphs made here")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")

    def outside(self) -> dict[str, str]:
        """The files are part of what is measured."""
        return fingerprints(self.files)

    def measure(self, subject: Subject) -> Measuring:
        """`graph_walks/f1` and `graph_walks/flexible_f1`, and the same of every group."""
        groups = self.groups(subject)
        asked = [each for members in groups.values() for each in members]
        answers = yield [Generation(Question(each.prompt), max_new_tokens=self.max_new_tokens) for each in asked]
        texts = {each.id: answer.text for each, answer in zip(asked, answers, strict=True)}
        metrics = []
        for name, members in {"": asked, **groups}.items():
            metrics += _metrics(name, members, texts)
        return Measured(metrics, [each.sample(texts[each.id]) for each in spread(asked)])

    def groups(self, subject: Subject) -> dict[str, list[GraphQuestion]]:
        """The questions by length and operation, or by the kind of the published rows."""
        groups: dict[str, list[GraphQuestion]] = {}
        if self.files:
            for place, row in subject.some(rows_of(self.files, (), None, given=True, suite="graph_walks")):
                kind = need(row, "problem_type", str, place)
                members = groups.setdefault(kind, [])
                nodes = frozenset(need(row, "answer_nodes", list, place))
                members.append(
                    GraphQuestion(f"graph_walks-{kind}-{len(members)}", kind, need(row, "prompt", str, place), nodes)
                )
            return groups
        count = min(self.count, subject.limit or self.count)
        tokenizer = subject.tokenizer
        for length in self.lengths:
            for operation in ("bfs", "parents"):
                subject.stop.check()
                groups[f"{operation}/{length}"] = [
                    self._question(
                        operation, length, number, subject.task_seed, lambda text: len(tokenizer.encode(text))
                    )
                    for number in range(count)
                ]
        return groups

    def _question(
        self, operation: Operation, length: int, number: int, seed: int, tokens: Callable[[str], int]
    ) -> GraphQuestion:
        """A question of at most `length` tokens, a pure function of the seed."""
        name = f"graph_walks-{operation}-{length}-{number}"

        def graph(size: int) -> list[tuple[str, str]]:
            return random_graph(random.Random(f"{name}/{seed}"), size)

        def written(edges: Sequence[tuple[str, str]], asked: str) -> str:
            lines = "\n".join(f"{start} -> {end}" for start, end in edges)
            return f"{INTRODUCTION}\n{lines}\nOperation: {asked}\n{ENDING}"

        low, high = EDGES_PER_NODE + 1, max(EDGES_PER_NODE + 1, length // EDGE_TOKENS)
        while low < high:
            middle = (low + high + 1) // 2
            edges = graph(middle)
            fits = tokens(written(edges, _search(edges[0][0], 1))) <= length
            low, high = (middle, high) if fits else (low, middle - 1)
        for size in range(
            low, EDGES_PER_NODE, -1
        ):  # another node's name may take a token more than the one that was tried
            edges = graph(size)
            asked, nodes = self._operation(operation, edges, random.Random(f"{name}/{seed}/{size}"))
            if tokens(prompt := written(edges, asked)) <= length:
                return GraphQuestion(name, operation, prompt, nodes)
        raise RecipeError(
            f"no graph fits into {length} tokens", place="suite graph_walks", fix="measure longer lengths"
        )

    def _operation(
        self, operation: Operation, edges: Sequence[tuple[str, str]], rng: random.Random
    ) -> tuple[str, frozenset[str]]:
        """What is asked, and its nodes: at least one, and not too many if that can be had."""
        nodes = sorted({node for edge in edges for node in edge})
        following = neighbours(edges)
        best: tuple[str, frozenset[str]] = ("", frozenset())
        for _ in range(ATTEMPTS):
            start, depth = rng.choice(nodes), rng.choice(self.depths)
            if operation == "parents":
                text, found = f"parents of {start}.", parents(edges, start)
            else:
                text, found = _search(start, depth), reached(following, start, depth)
            if 1 <= len(found) <= self.most_nodes:
                return text, found
            if found and (not best[1] or len(found) < len(best[1])):
                best = text, found
        return best


def random_graph(rng: random.Random, edges: int) -> list[tuple[str, str]]:
    """So many different edges, in a random order, between nodes that are named by ten hexadecimal digits."""
    names = [f"{rng.getrandbits(40):010x}" for _ in range(max(4, edges // EDGES_PER_NODE))]
    found: dict[tuple[str, str], None] = {}
    while len(found) < min(edges, len(names) * (len(names) - 1)):
        start, end = rng.sample(names, 2)
        found[start, end] = None
    return list(found)


def neighbours(edges: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The nodes that edges lead to, by where they come from."""
    following: dict[str, list[str]] = {}
    for start, end in edges:
        following.setdefault(start, []).append(end)
    return following


def reached(following: Mapping[str, Sequence[str]], start: str, depth: int) -> frozenset[str]:
    """The nodes at exactly this distance from the start."""
    seen, layer = {start}, {start}
    for _ in range(depth):
        layer = {node for each in layer for node in following.get(each, ())} - seen
        seen |= layer
    return frozenset(layer)


def _search(start: str, depth: int) -> str:
    return f"breadth-first search from {start} at depth {depth}."


def parents(edges: Sequence[tuple[str, str]], node: str) -> frozenset[str]:
    """The nodes with an edge to this one."""
    return frozenset(start for start, end in edges if end == node and start != node)


def last_line_answer(text: str) -> frozenset[str]:
    """The nodes that the last line names."""
    return _nodes(text.rstrip("\n").split("\n")[-1]) or frozenset()


def any_line_answer(text: str) -> frozenset[str]:
    """The nodes of the last line that has an answer."""
    lines = reversed(text.rstrip("\n").split("\n"))
    return next((found for line in lines if (found := _nodes(line)) is not None), frozenset())


def _nodes(line: str) -> frozenset[str] | None:
    found = ANSWER.search(line)
    return found and frozenset(part.strip().strip("'\"") for part in found[1].split(",") if part.strip())


def set_f1(found: frozenset[str], right: frozenset[str]) -> float:
    """Twice what both have, over what they have together; 0 if one is empty."""
    return 2 * len(found & right) / (len(found) + len(right)) if found and right else 0.0


def _metrics(group: str, members: Sequence[GraphQuestion], texts: dict[str, str]) -> list[Metric]:
    label = f"Graph walks{f', {group}' if group else ''}"
    end = f"/{group}" if group else ""
    strict: dict[str, Any] = {each.id: set_f1(last_line_answer(texts[each.id]), each.nodes) for each in members}
    flexible = {each.id: set_f1(any_line_answer(texts[each.id]), each.nodes) for each in members}
    return [
        metric_of_units(f"graph_walks/f1{end}", strict, f"{label}, F1 of sets"),
        metric_of_units(f"graph_walks/flexible_f1{end}", flexible, f"{label}, F1 of sets on any line"),
    ]
