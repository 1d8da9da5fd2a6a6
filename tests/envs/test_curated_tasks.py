"""Prompts through the data room: near-duplicates and test questions leave before anything is trained on them."""

from __future__ import annotations

from pathlib import Path

from ingot.envs.tasks.gsm8k import Gsm8k
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from tests.making.rows import read_rows, write_rows

RECIPE = """
name: prompts
stages:
  curate:
    workers: 1
    sources: [{files: TRAIN, text: question, keep: {answer: string}}]
    steps:
      - {step: near_dedup}
      - {step: decontaminate, against: [TEST]}
"""


def test_prompts_are_deduplicated_and_decontaminated(shared_data: Path, tmp_path: Path) -> None:
    def rows(name: str) -> list[dict[str, str]]:
        return read_rows(shared_data / "gsm8k" / f"{name}.jsonl.gz")

    clean, test = rows("train")[:40], rows("test_dev")[:20]
    again = [{**row, "question": f"{row['question']} Think."} for row in clean[:5]]  # nearly the same
    leaked = [{**row, "question": f"Hello! {row['question']}"} for row in test[:4]]
    for name, written in (("train", [*clean, *again, *leaked]), ("test", test)):
        write_rows(tmp_path / f"{name}.jsonl", written)
    recipe = tmp_path / "recipe.yaml"
    paths = {"TRAIN": tmp_path / "train.jsonl", "TEST": tmp_path / "test.jsonl"}
    text = RECIPE
    for word, path in paths.items():
        text = text.replace(word, str(path))
    recipe.write_text(text, encoding="utf-8")
    (stage,) = run_recipe(load_recipe(recipe), tmp_path / "runs").stages
    environment = Gsm8k(train=(str(stage.folder),), test=(str(paths["TEST"]),), text_as="question")
    found = {str(task.data["solution"]) for task in environment.rows("train") or ()}
    raw = Gsm8k(train=(str(paths["TRAIN"]),), test=(str(paths["TEST"]),))
    assert len(raw.rows("train") or ()) == 49
    assert len(environment.rows("train") or ()) == len(found) == 40
    assert not found & {str(task.data["solution"]) for task in environment.rows("test") or ()}
    assert environment.outside().keys() >= {f"{stage.folder.name}/part-00000.parquet"}
