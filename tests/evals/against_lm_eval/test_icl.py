"""Tasks of the Eval Gauntlet: the same text as lm-eval builds of the same rows, scored by the Gauntlet's rules.

These are (MosaicML's Composer, which DCLM's CORE uses): choices are ranked by the mean cross-entropy of their own tokens, the
delimiter before them left out; a continuation is right if every token of it is the likeliest one.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Likely
from tests.evals.against_lm_eval.asking import evaluated, subject
from tests.evals.against_lm_eval.peer import load_task, write_task
from tests.evals.against_lm_eval.published import rows_of
from tests.evals.against_lm_eval.test_prompts import as_texts
from tests.making.rows import write_rows

CHOICES = {"doc_to_text": "{{query.rstrip()}}", "doc_to_choice": "choices", "doc_to_target": "gold"}
SCHEMA = {
    "doc_to_text": "gold",
    "doc_to_choice": "context_options",
    "doc_to_target": "{{continuation.strip()}}",
}
WRITTEN = {
    "output_type": "loglikelihood",
    "doc_to_text": "{{context.strip()}}",
    "doc_to_target": "{{continuation.strip()}}",
    "doc_to_choice": None,
}


@pytest.mark.parametrize(
    ("task", "delimiter", "shots", "shape"),
    [
        ("bigbench_strategy_qa", " ", 4, CHOICES),
        ("bigbench_novel_concepts", "\nAnswer: ", 2, CHOICES),
        ("arc_easy", "\nAnswer: ", 0, CHOICES),
        ("winograd_wsc", " ", 0, SCHEMA),
        ("winograd_wsc", " ... ", 0, SCHEMA),
        ("bigbench_qa_wikidata", " ", 3, WRITTEN),
        ("bigbench_dyck_languages", " = ", 2, WRITTEN),
    ],
)
def test_a_task_is_asked_and_scored_by_the_rules(
    task: str, delimiter: str, shots: int, shape: dict[str, Any], shared_data: Path, tmp_path: Path
) -> None:
    rows = rows_of(shared_data, f"core_icl/{task}", 44)
    asked, pool = rows[:24], rows[24:]
    changes = {**shape, "target_delimiter": delimiter, "should_decontaminate": False, "validation_split": None}
    if shape is WRITTEN:  # of which lm-eval scores the target alone, so that the delimiter is part of it
        changes |= {"target_delimiter": "", "doc_to_target": delimiter + shape["doc_to_target"]}
    splits = {"test": asked, "train": pool}
    peer = load_task(write_task(tmp_path, "peer", "arc/arc_easy.yaml", splits, **changes), shots)
    peer.build_all_requests()
    options = {"shots": shots, "shot_files": [str(write_rows(tmp_path / "pool.jsonl", pool))]} if shots else {}
    files = [str(write_rows(tmp_path / "asked.jsonl", asked))]
    suite = SUITES.read({"suite": "icl", "task": task, "files": files, "delimiter": delimiter, **options})
    measuring = suite.measure(subject())
    assert not isinstance(measuring, Measured)
    texts = [as_texts(request) for request in next(measuring)]
    assert ["".join(each) for each in texts] == ["".join(instance.args) for instance in peer.instances]

    generator = random.Random(2)
    answers = [Likely(generator.uniform(-40, -1), generator.random() < 0.4, generator.randint(1, 9)) for _ in texts]
    found = evaluated(measuring, answers)
    remaining = iter(zip(texts, answers, strict=True))
    right = []
    for row in asked:
        options_of = row.get("choices") or row.get("context_options") or [row["continuation"]]
        scored = [next(remaining) for _ in options_of]
        for ((_, scored_text), _), option in zip(scored, options_of, strict=True):
            words = row.get("continuation", option)
            assert scored_text.split() == words.split()  # nothing of the delimiter but its blanks
        losses = [-likely.logprob / likely.tokens for _, likely in scored]
        right.append(float(losses.index(min(losses)) == row["gold"] if "gold" in row else scored[0][1].greedy))
    name = "accuracy" if shape is WRITTEN else "accuracy_by_token"
    assert list(found[f"icl/{task}/{name}"].units.values()) == right
    assert 0 < sum(right) < len(right)


def test_a_task_is_found_by_its_name(shared_data: Path) -> None:
    measuring = SUITES.read({"suite": "icl", "task": "winograd_wsc", "limit": 5}).measure(subject(shared_data))
    assert not isinstance(measuring, Measured)
    assert len(next(measuring)) == 10
