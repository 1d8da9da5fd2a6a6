"""Graph walks: answers by networkx, scores by lm-eval's own functions on odd answers."""

from __future__ import annotations

import re
from pathlib import Path

import networkx
import pytest

from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Generation, Question, Written
from ingot.evals.suites.graph_walks import GraphQuestion, GraphWalks, any_line_answer, last_line_answer, set_f1
from ingot.workspace.errors import RecipeError
from ingot.workspace.interrupt import StopSignal
from tests.evals.conftest import World

SUITE = GraphWalks(lengths=(700, 1500), count=4)
HEADS = ("", "Final Answer: [z]\n", "Final Answer: none\n")
LISTS = ("a, b", "b,a ,  ", "'a', \"b\"", "", " ", "a", "a, a, a", "c", "A, B", "[a], b", "a b", "a, b], [c", ",")
FORMS = (
    "Final Answer: [{}]",
    "Final Answer:[{}].",
    "final answer: [{}]",
    "**Final Answer: [{}]**",
    "Answer: [{}]",
    "Final Answer: {}",
)
ENDS = ("", "\n\n", "\nDone.")
ANSWERS = [head + form.format(nodes) + end for head in HEADS for nodes in LISTS for form in FORMS for end in ENDS]


@pytest.fixture(scope="module")
def subject(world: World) -> Subject:
    return Subject("tiny", "text", StopSignal(), given_tokenizer=world.tokenizer)


@pytest.fixture(scope="module")
def groups(subject: Subject) -> dict[str, list[GraphQuestion]]:
    return SUITE.groups(subject)


def test_scores_are_lm_evals() -> None:
    peer = pytest.importorskip("lm_eval.tasks.graphwalks.utils", reason="lm-eval comes with the extra [evals]")
    assert len(ANSWERS) > 500
    seen = set()
    for right in (["a", "b"], ["a"], ["a", "b", "c", "d"], []):
        for text in ANSWERS:
            expected = peer.process_results({"answer_nodes": right}, [text])
            ours = [set_f1(read(text), frozenset(right)) for read in (last_line_answer, any_line_answer)]
            assert ours == pytest.approx([expected["f1"], expected["flexible_f1"]]), (right, text)
            seen.add(round(ours[0], 3))
    assert len(seen) >= 5


def test_answers_are_networkx(groups: dict[str, list[GraphQuestion]]) -> None:
    assert list(groups) == ["bfs/700", "parents/700", "bfs/1500", "parents/1500"]
    for name, members in groups.items():
        assert len({each.prompt for each in members}) == len(members) == 4
        for each in members:
            before, after = each.prompt.split("\nOperation: ")[-2:]
            graph = networkx.DiGraph(re.findall(r"^(\w{10}) -> (\w{10})$", before, re.MULTILINE))
            assert graph.number_of_edges() > 3
            if name.startswith("bfs"):
                start, depth = re.match(r"breadth-first search from (\w+) at depth (\d)\.", after).groups()  # type: ignore[union-attr]
                layers = dict(enumerate(networkx.bfs_layers(graph, start)))
                assert each.nodes == set(layers[int(depth)])
            else:
                node = re.match(r"parents of (\w+)\.", after)[1]  # type: ignore[index]
                assert each.nodes == set(graph.predecessors(node))
            assert 1 <= len(each.nodes) <= 16


def test_questions_are_as_long_as_allowed(
    groups: dict[str, list[GraphQuestion]], subject: Subject, world: World
) -> None:
    for name, members in groups.items():
        length = int(name.split("/")[1])
        sizes = [len(world.tokenizer.encode(each.prompt)) for each in members]
        assert max(sizes) <= length and min(sizes) > length - 100
    with pytest.raises(RecipeError, match="no graph fits into 64 tokens"):
        GraphWalks(lengths=(64,)).groups(subject)


def test_published_rows_and_metrics(subject: Subject, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"prompt": "edges…", "answer_nodes": ["a", "b"], "problem_type": "bfs"}\n'
        '{"prompt": "others…", "answer_nodes": ["c"], "problem_type": "parents"}\n'
    )
    measuring = GraphWalks(files=(str(rows),)).measure(subject)
    assert next(measuring) == [
        Generation(Question("edges…"), max_new_tokens=1024),
        Generation(Question("others…"), max_new_tokens=1024),
    ]
    with pytest.raises(StopIteration) as stopped:
        texts = ("Final Answer: [a]", "Final Answer: [c]\nThat is all.")
        measuring.send([Written(text, None, "stop", 5) for text in texts])
    found = {each.name: each.estimate.value for each in stopped.value.value.metrics}
    assert found["graph_walks/f1"] == pytest.approx(1 / 3) and found["graph_walks/flexible_f1"] == pytest.approx(5 / 6)
    assert found["graph_walks/f1/bfs"] == pytest.approx(2 / 3) and found["graph_walks/flexible_f1/parents"] == 1
