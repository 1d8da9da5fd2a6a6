"""Paths in a graph: a shortest path between two nodes (any shortest one counts), or all nodes that can be reached from one.

Reachability asks for the nodes and not for yes or no, so that no constant answer earns anything.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from string import ascii_uppercase
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

FORM = "answer with the letters of the nodes only, separated by blanks"
WORDINGS = {
    "path": (
        "The {0} of a graph are {1}. Find a shortest path from {2} to {3}; " + FORM + ".",
        "Which is a shortest path from {2} to {3} if the {0} are {1}? Please " + FORM + ", from {2} to {3}.",
        "Go from {2} to {3} with as few steps as possible along these {0}: {1}; " + FORM + ", both ends with it.",
    ),
    "reachable": (
        "The {0} of a graph are {1}. Which other nodes can be reached from {2}? Please " + FORM + ", in any order.",
        "Along these {0}: {1}, find every node that can be reached from {2}, without {2} itself; " + FORM + ".",
        "Start at {2} and follow the {0} {1}. Where can you get to, apart from {2}? Please " + FORM + ".",
    ),
}
LENGTH_LIMIT = 400
TRIES = 1000

Edges = tuple[tuple[str, str], ...]


class GraphPaths(Environment):
    """Shortest paths and reachable nodes in a small graph."""

    label: ClassVar[str] = "graphs"
    questions: tuple[Literal["path", "reachable"], ...] = Field(
        ("path", "reachable"), min_length=1, description="what is asked, each equally often"
    )
    nodes_min: int = Field(5, ge=4, le=26, description="nodes of the smallest graphs")
    nodes_max: int = Field(7, ge=4, le=26, description="nodes of the largest graphs")
    edges_per_node: float = Field(1.2, ge=0.6, le=4, description="how many edges there are for each node")
    directed: bool = Field(False, description="edges go one way")
    steps_min: int = Field(2, ge=2, le=10, description="steps of the shortest paths that are asked for")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.nodes_min > self.nodes_max:
            raise ValueError(f"nodes_min ({self.nodes_min}) is larger than nodes_max ({self.nodes_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        asks = rng.choice(self.questions)
        for _ in range(TRIES):
            nodes = rng.sample(ascii_uppercase, rng.randint(self.nodes_min, self.nodes_max))
            # where all reachable nodes are asked for no edge joins two halves: else that would be nearly every node
            cut = rng.randint(2, len(nodes) - 2) if asks == "reachable" else len(nodes)
            joined = [(one, other) for half in (nodes[:cut], nodes[cut:]) for one in half for other in half]
            pairs = [(one, other) for one, other in joined if one < other or (self.directed and one != other)]
            edges = tuple(rng.sample(pairs, min(len(pairs), round(self.edges_per_node * len(nodes)))))
            if not self.directed:
                edges = tuple(edge if rng.random() < 0.5 else edge[::-1] for edge in edges)
            start, goal = rng.sample(nodes, 2)
            came = search(edges, start, self.directed)[0]
            others = len({node for edge in edges for node in edge} - {start})
            if asks == "path" and goal in came and len(trace_back(came, goal)) > self.steps_min:
                return self._task(rng, "path", edges, start, goal, " ".join(trace_back(came, goal)))
            if (
                asks == "reachable" and 1 < len(came) <= others
            ):  # some nodes of the edges can be reached, and some cannot
                return self._task(rng, "reachable", edges, start, "", " ".join(sorted(came.keys() - {start})))
        raise DataError(
            f"none of {TRIES} graphs has what is asked ({asks})",
            place=f"task kind {self.kind}",
            fix="change edges_per_node (fewer for reachable, about 1 to 2 for long paths), steps_min or the number of nodes",
        )

    def _task(self, rng: random.Random, asks: str, edges: Edges, start: str, goal: str, answer: str) -> Task:
        arrow = "->" if self.directed else "-"
        name = "directed edges" if self.directed else "edges"
        question = word(WORDINGS[asks], rng, name, ", ".join(arrow.join(edge) for edge in edges), start, goal)
        facts = sorted(arrow.join(edge if self.directed else sorted(edge)) for edge in edges)
        asked = (asks, edges, start, goal, self.directed)
        return self.ask(question, answer, fact=f"{asks} {start} {goal} {facts}", asked=asked)

    def solution(self, task: Task) -> list[Message]:
        asks, edges, start, goal, directed = task.asked
        came, lines = search(edges, start, directed, goal)
        if asks == "path":
            lines.append(f"back from {goal}: {' '.join(reversed(trace_back(came, goal)))}")
        return [Message(role="assistant", content=task.answer, thinking="\n".join(lines))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """A node of the answer is left out."""
        parts = task.answer.split(" ")
        del parts[rng.randrange(len(parts))]
        (reply,) = self.solution(task)
        return [replace(reply, content=" ".join(parts) or "none")]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        asks, edges, start, goal, directed = task.asked
        content = final_content(messages).strip().removesuffix(".")
        nodes: list[str] = []
        if len(content) <= LENGTH_LIMIT and re.fullmatch(
            r"[A-Z](?:(?:\s*(?:->|→|,|-)\s*|\s+)[A-Z])*", content, re.ASCII
        ):
            nodes = re.findall("[A-Z]", content)
        if asks == "path":
            correct = bool(nodes) and is_shortest(nodes, edges, start, goal, directed)
        else:
            correct = sorted(nodes) == task.answer.split(" ")
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def following(edges: Edges, node: str, directed: bool) -> list[str]:
    """The nodes one step away, in the order of the alphabet."""
    onward = {second for first, second in edges if first == node}
    return sorted(onward if directed else onward | {first for first, second in edges if second == node})


def search(edges: Edges, start: str, directed: bool, goal: str = "") -> tuple[dict[str, str], list[str]]:
    """Breadth first, to the goal if there is one: from where each node was reached, and a line for every node looked at."""
    came, queue, lines = {start: ""}, [start], []
    for node in queue:
        if goal and goal in came:
            break
        new = [other for other in following(edges, node, directed) if other not in came]
        came |= dict.fromkeys(new, node)
        queue += new
        lines.append(f"new from {node}: {' '.join(new) or 'none'}")
    return came, lines


def trace_back(came: dict[str, str], goal: str) -> list[str]:
    """The path to the goal."""
    path = [goal]
    while came[path[0]]:
        path.insert(0, came[path[0]])
    return path


def is_shortest(nodes: Sequence[str], edges: Edges, start: str, goal: str, directed: bool) -> bool:
    """Whether the nodes are a path from start to goal, as short as any."""
    walks = all(second in following(edges, first, directed) for first, second in pairwise(nodes))
    shortest = len(trace_back(search(edges, start, directed)[0], goal))
    return (nodes[0], nodes[-1], len(nodes)) == (start, goal, shortest) and walks
