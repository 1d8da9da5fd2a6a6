"""Selection: bounded, fair, and honest about what was left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ingot.report.read import read_run
from ingot.report.records import GenerationRow, ReadProblem, RemovedDocument, StageRecord
from ingot.report.select import (
    PROBLEMS_PER_RULE,
    REMOVED_PER_STEP,
    TASKS,
    eval_beside,
    generations_by_task,
    problems_by_rule,
    removed_by_step,
    round_robin,
    spread,
)

from .run_files import rows_of


def test_a_rare_group_is_seen_beside_a_common_one() -> None:
    chosen = round_robin(["a1", "a2", "a3", "a4", "b1", "c1", "c2"], lambda item: item[0], 5)
    assert chosen == ["a1", "b1", "c1", "a2", "c2"]
    assert round_robin([], str, 5) == []


def test_spread_keeps_both_ends() -> None:
    assert spread(list(range(100)), 4) == [0, 33, 66, 99]
    assert spread([1, 2], 4) == [1, 2]


def test_removed_samples_are_spread_over_rules() -> None:
    documents = [
        RemovedDocument(id=str(index), step="rules", rule="too_short", reason=f"rules: too_short {index}")
        for index in range(100)
    ]
    documents.append(RemovedDocument(id="r", step="rules", rule="rare", reason="rules: rare"))
    removed = removed_by_step(StageRecord("curate", "curate", "done", removed=documents))["rules"]
    assert removed["total"] == 101 and len(removed["samples"]) == REMOVED_PER_STEP
    assert Counter(sample["rule"] for sample in removed["samples"]) == {"too_short": REMOVED_PER_STEP - 1, "rare": 1}
    assert removed["samples"][0]["reason"] == "too_short 0"


def test_the_eval_beside_a_document_is_the_one_that_its_reason_names() -> None:
    """Ids begin alike, and both modes of decontamination write their reasons in their own way."""
    texts = {"gsm8k:1": "one", "gsm8k:12": "twelve", "mmlu/dev:12": "other"}
    for reason, expected in (
        ("holds an eval: “nine green apples” and 8 more n-grams of gsm8k:12", "twelve"),
        ("holds an eval: “nine green apples” of gsm8k:1 (50% of it)", "one"),
        ("holds an eval: mmlu/dev:12, 0.93 >= 0.8 (question 0.91)", "other"),
    ):
        assert eval_beside({"reason": reason}, texts)["eval_text"] == expected
    assert eval_beside({"reason": "holds an eval: “a” of gsm8k:123"}, texts) == {}


def test_damage_is_listed_before_what_is_no_document() -> None:
    problems = [ReadProblem(place=f"a@{index}", rule="not a page") for index in range(9)]
    problems += [ReadProblem(place="b@1", rule="not UTF-8", kept=True), ReadProblem(place="c@1", rule="not JSON")]
    chosen = problems_by_rule(problems)
    assert [problem["rule"] for problem in chosen] == ["not JSON", "not UTF-8"] + ["not a page"] * PROBLEMS_PER_RULE


def test_tasks_do_not_depend_on_whether_answers_were_right() -> None:
    """The same tasks are shown for a run that got everything wrong as for one that got everything right."""

    def evaluations(correct: bool) -> list[tuple[str, StageRecord]]:
        rows = [
            GenerationRow(task_id=f"{kind}-{index}", kind=kind, completion="x", correct=correct)
            for index in range(60)
            for kind in "ab"
        ]
        return [("sft", StageRecord("eval-sft", "eval", "done", generations=rows))]

    right, wrong = generations_by_task(evaluations(True)), generations_by_task(evaluations(False))
    assert [task["id"] for task in right["tasks"]] == [task["id"] for task in wrong["tasks"]]
    assert len(right["tasks"]) == TASKS and right["total"] == 120
    assert Counter(task["kind"] for task in right["tasks"]) == {"a": TASKS // 2, "b": TASKS // 2}
    assert right["tasks"][0]["answers"]["sft"] == {"right": 1, "judged": 1, "texts": [["x", True]]}


def test_tasks_that_all_checkpoints_answered_come_first() -> None:
    def record(ids: list[str]) -> StageRecord:
        return StageRecord("eval", "eval", "done", generations=[GenerationRow(task_id=id, correct=None) for id in ids])

    chosen = generations_by_task([("base", record(["only", "both"])), ("sft", record(["both"]))])
    assert [task["id"] for task in chosen["tasks"]] == ["both", "only"]
    assert chosen["tasks"][0]["answers"]["sft"]["judged"] == 0


def test_what_is_selected_of_a_real_run_stands_in_its_files(real_run: Path) -> None:
    run = read_run(real_run)
    curate = next(stage for stage in run.stages if stage.name == "curate")
    texts = {row["id"]: row["text"] for row in rows_of(real_run, "curate", "documents/removed.jsonl")}
    for step, part in removed_by_step(curate).items():
        assert 0 < len(part["samples"]) <= REMOVED_PER_STEP
        for sample in part["samples"]:
            assert texts[sample["id"]].startswith(sample["text"]) and not sample["reason"].startswith(f"{step}:")
