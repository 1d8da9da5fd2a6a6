"""IFEval and IFBench: GPT-4's published answers and odd ones, against the verdicts of lm-eval's scorer.

The published verdicts are recorded (record_ifeval.py and envs/verifiers/record_published.py say from what).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.evals.suites.ifbench import Ifbench
from ingot.evals.suites.ifeval import Ifeval
from ingot.workspace.errors import DataError
from tests.envs.verifiers.record_published import FILE
from tests.envs.verifiers.test_instructions import GPT4_RANDOM
from tests.evals.suites import record_ifeval
from tests.evals.suites.asking import last_text, measure, subject, units, values
from tests.evals.suites.ifeval_answers import MADE, answers_hash, answers_of, some_rows
from tests.making.rows import read_rows, write_rows


def test_gpt4_scores_what_the_published_scorer_gives_it(shared_data: Path) -> None:
    """The recorded verdicts of lm-eval on 387 instructions: equal, but for a row whose letter it draws at random."""
    rows = read_rows(shared_data / "ifeval" / "ifeval_dev.jsonl.gz")
    answers = {
        row["prompt"]: row["response"] for row in read_rows(shared_data / "ifeval" / "gpt4_responses_dev.jsonl.gz")
    }
    found = measure(Ifeval(), lambda request: answers[last_text(request)], subject(shared_data))
    recorded = json.loads(FILE.read_text(encoding="utf-8"))["gpt4"]
    for number, level in enumerate(("strict", "loose")):
        theirs = {
            f"{row['key']}/{place}": float(bit)
            for row, bits in zip(rows, recorded, strict=True)
            for place, bit in enumerate(bits[number])
        }
        ours = units(found)[f"ifeval/instruction_{level}"]
        differing = {unit.partition("/")[0] for unit in theirs if theirs[unit] != ours[unit]}
        assert differing <= {str(GPT4_RANDOM)}
        theirs_by_prompt = {str(row["key"]): min(bits[number]) == "1" for row, bits in zip(rows, recorded, strict=True)}
        ours_by_prompt = units(found)[f"ifeval/prompt_{level}"]
        assert {key for key, bit in theirs_by_prompt.items() if bit != ours_by_prompt[key]} <= differing
    scores = {name: round(value * len(units(found)[name])) for name, value in values(found).items()}
    assert scores == {  # the published scorer: 202 or 203, 210 or 211, 322 or 323, 330 or 331
        "ifeval/prompt_strict": 203,
        "ifeval/prompt_loose": 211,
        "ifeval/instruction_strict": 323,
        "ifeval/instruction_loose": 331,
    }
    by_instruction = next(metric for metric in found.metrics if metric.name == "ifeval/instruction_strict")
    assert len(by_instruction.units) == 387 and len(set(by_instruction.clusters.values())) == 259


def test_odd_answers_score_as_published(shared_data: Path, tmp_path: Path) -> None:
    """Strict and loose, by prompt and by instruction, on every kind of instruction."""
    rows = some_rows(shared_data)
    assert {id for row in rows for id in row["instruction_id_list"]} == set(MADE)
    published = json.loads(record_ifeval.FILE.read_text(encoding="utf-8"))
    assert published["answers"] == answers_hash(rows), "the answers changed: record the verdicts again"
    asked, answers, theirs = [], {}, {}
    for row in rows:
        verdicts = published["verdicts"][str(row["key"])]
        for number, (answer, verdict) in enumerate(zip(answers_of(row), verdicts, strict=True)):
            prompt = f"{number}: {row['prompt']}"
            asked.append({**row, "key": f"{row['key']}-{number}", "prompt": prompt})
            answers[prompt] = answer
            theirs[asked[-1]["key"]] = verdict.split("/")
    file = write_rows(tmp_path / "ifeval.jsonl", asked)
    found = units(measure(Ifeval(files=(str(file),)), lambda request: answers[last_text(request)]))
    for number, level in enumerate(("strict", "loose")):
        by_instruction = {
            f"{key}/{place}": float(bit) for key, bits in theirs.items() for place, bit in enumerate(bits[number])
        }
        ours = found[f"ifeval/instruction_{level}"]
        differing = {unit: ours[unit] for unit in ours if ours[unit] != by_instruction[unit]}
        assert differing == {}
        by_prompt = {key: float("0" not in bits[number]) for key, bits in theirs.items()}
        assert found[f"ifeval/prompt_{level}"] == by_prompt
    assert len(theirs) > 1000 and {bit for bits in theirs.values() for bit in "".join(bits)} == {"0", "1"}


def test_ifbench_rows(tmp_path: Path) -> None:
    """Rows with all kwargs of the data set, most of them null, as the hub has them."""
    file = tmp_path / "ifbench.jsonl"
    blank = {"N": None, "keyword1": None, "min_words": None}
    row = {
        "key": "7",
        "prompt": "Say it.",
        "instruction_id_list": ["count:word_count_range", "words:palindrome"],
        "kwargs": [{**blank, "min_words": 2, "max_words": 40}, blank],
    }
    file.write_text(json.dumps(row))
    found = values(measure(Ifbench(files=(str(file),)), lambda request: "Only two *words* here."))
    assert found == {
        "ifbench/prompt_loose": 0,
        "ifbench/prompt_strict": 0,
        "ifbench/instruction_strict": 0.5,
        "ifbench/instruction_loose": 0.5,
    }
    row["kwargs"] = [blank]
    file.write_text(json.dumps(row))
    with pytest.raises(DataError, match="2 instructions and 1 kwargs"):
        Ifbench(files=(str(file),)).items(subject())
