"""A suite that is data alone, as docs/guides/task-kind.md shows it: its numbers are lm-eval's, its errors have line and fix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

from ingot.cli.app import app
from ingot.evals.bases.suite import Suite
from ingot.evals.bases.suites import SUITES
from ingot.evals.scores.scores import load_scores
from ingot.recipe.graph import hash_stages
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.files import read_jsonl
from tests.evals.conftest import World
from tests.making.rows import write_rows

GUIDE = Path(__file__).parents[2] / "docs/guides/task-kind.md"
CITIES = [
    ("France", "Paris"),
    ("Spain", "Madrid"),
    ("Peru", "Lima"),
    ("Kenya", "Nairobi"),
    ("Japan", "Tokyo"),
    ("Cuba", "Havana"),
]
MORE = [
    ("Norway", "Oslo"),
    ("Iraq", "Baghdad"),
    ("Nepal", "Kathmandu"),
    ("Egypt", "Cairo"),
    ("Oman", "Muscat"),
    ("Fiji", "Suva"),
]
WORDS = "question: '{{question}}'\nanswer: accepted\nrows: words.jsonl\nmax_new_tokens: 6\n"


def rows(cities: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The capital stands at another place in each row, among those of other countries."""
    found = []
    for number, (country, capital) in enumerate(cities):
        options = [other for _, other in [*cities, *cities][number + 1 : number + 4]]
        options.insert(number % 4, capital)
        labels = ["A", "B", "C", "D"]
        choices = {"text": options, "label": labels}
        found.append({"question": f"Capital of {country}?", "choices": choices, "key": labels[number % 4]})
    return found


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    write_rows(path, rows)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (shown,) = re.findall(r"```yaml\n# capitals\.yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "capitals.yaml").write_text(shown, encoding="utf-8")
    write(tmp_path / "capitals.jsonl", rows(CITIES + MORE))
    write(
        tmp_path / "train.jsonl",
        rows([("Italy", "Rome"), ("Ghana", "Accra"), ("Chile", "Santiago"), ("Iran", "Tehran")]),
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_peer(folder: Path, name: str, **task: Any) -> None:
    """The same suite as a task file of lm-eval."""
    base = {
        "task": name,
        "dataset_path": "json",
        "test_split": "test",
        "metadata": {"version": 1},
        "dataset_kwargs": {"data_files": task.pop("files"), "cache_dir": str(folder / "cache")},
    }
    (folder / "peers").mkdir(exist_ok=True)
    (folder / "peers" / f"{name}.yaml").write_text(yaml.safe_dump(base | task), encoding="utf-8")


def measure(world: World, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The scores and samples of `ingot eval`."""
    called = ["eval", "model", str(world.checkpoint), *words, "--device", "cpu", "--form", "text", "--json"]
    result = CliRunner().invoke(app, called)
    assert result.exit_code == 0, result.output
    (stage,) = json.loads(result.stdout)["stages"]
    (found,) = Path("runs").glob(f"*/{stage['folder']}/scores")
    return load_scores(found), read_jsonl(found / "samples.jsonl")


def test_choices_as_lm_eval_scores_them(world: World, folder: Path) -> None:
    write_peer(
        folder,
        "peer",
        files={"test": str(folder / "capitals.jsonl"), "train": str(folder / "train.jsonl")},
        fewshot_split="train",
        num_fewshot=2,
        output_type="multiple_choice",
        doc_to_text="Question: {{question}}\nAnswer:",
        doc_to_choice="{{choices.text}}",
        doc_to_target="{{choices.label.index(key)}}",
        metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}],
    )
    peer = ("--suite", "lm_eval:peer", "--set", f"suites.1.include_path={folder}/peers")
    scores, _ = measure(world, "capitals.yaml", *peer)
    for ours, theirs in (("accuracy", "acc"), ("accuracy_by_character", "acc_norm")):
        units = [list(scores[name].units.values()) for name in (f"capitals/{ours}", f"lm_eval/peer/{theirs}")]
        assert units[0] == units[1] and len(units[0]) == 12
    assert {
        unit for name in ("accuracy", "accuracy_by_character") for unit in scores[f"capitals/{name}"].units.values()
    } == {0, 1}


def test_short_answers_as_lm_eval_scores_them(world: World, folder: Path) -> None:
    """Every second row accepts what the model is known to write, in another case of letters."""
    asked = [{"question": f"The capital of {country} is", "accepted": ["unknown"]} for country, _ in CITIES]
    (folder / "words.yaml").write_text(WORDS, encoding="utf-8")
    write(folder / "words.jsonl", asked)
    _, samples = measure(world, "words.yaml")
    for row, sample in list(zip(asked, samples, strict=True))[::2]:
        row["accepted"] = ["unknown", sample["completion"].upper()]
    write_peer(
        folder,
        "peer",
        files={"test": write(folder / "words.jsonl", asked)},
        output_type="generate_until",
        doc_to_text="{{question}}",
        doc_to_target="{{accepted[-1]}}",
        generation_kwargs={"until": ["\n"], "max_gen_toks": 6, "do_sample": False},
        metric_list=[{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}],
    )
    scores, _ = measure(
        world, "words.yaml", "--suite", "lm_eval:peer", "--set", f"suites.1.include_path={folder}/peers"
    )
    units = [list(scores[name].units.values()) for name in ("words/exact_match", "lm_eval/peer/exact_match")]
    assert units == [[1, 0, 1, 0, 1, 0]] * 2


def test_a_recipe_changes_options_and_an_edited_file_is_work_to_do(world: World, folder: Path) -> None:
    other = '{suite: capitals.yaml, name: zero, shots: 0, options: ["{{choices.text[0]}}", "no"], answer: "0"}'
    entry = f"[capitals.yaml, {other}]"
    recipe = (
        f"name: mine\ninputs: {{checkpoint: {world.checkpoint}}}\nstages: {{eval: {{device: cpu, suites: {entry}}}}}\n"
    )
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")

    first = hash_stages(load_recipe(folder / "recipe.yaml"))["eval"]
    moved = folder / "elsewhere"
    moved.mkdir()
    for name in ("recipe.yaml", "capitals.yaml", "capitals.jsonl", "train.jsonl"):
        (moved / name).write_bytes((folder / name).read_bytes())
    assert hash_stages(load_recipe(moved / "recipe.yaml"))["eval"] == first
    seen = [first]
    for name in ("capitals.yaml", "capitals.jsonl", "train.jsonl"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(
            text.replace("Question:", "Q:").replace("Rome", "Roma").replace("Oslo", "Bergen"), encoding="utf-8"
        )
        seen.append(hash_stages(load_recipe(folder / "recipe.yaml"))["eval"])
    assert len({*seen}) == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("options:", "optons:", "capitals.yaml:3: unknown key optons\n  fix: did you mean options?"),
        (
            "{{question}}",
            "{{qestion}}",
            "question: FOLDER/capitals.jsonl:1 has no column qestion\n  fix: did you mean question?",
        ),
        ("{{question}}", "{{question", "capitals.yaml:2: question: "),
        ("shots: 2", "shots: two", "capitals.yaml:6: shots: "),
        ("choices.label.index(key)", "''", "capitals.yaml:4: answer is missing"),
        ("shots: 2", "stop: ['.']", "unknown key stop\n  fix: known keys: rows, shot_rows, "),
        ("rows:", "rows: [", "not valid YAML"),
    ],
)
def test_errors_have_the_line_and_the_fix(world: World, folder: Path, old: str, new: str, said: str) -> None:
    text = (folder / "capitals.yaml").read_text(encoding="utf-8")
    assert old in text
    (folder / "capitals.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    (folder / "recipe.yaml").write_text(
        f"inputs: {{checkpoint: {world.checkpoint}}}\nstages: {{eval: {{suites: [capitals.yaml]}}}}\n", encoding="utf-8"
    )
    with pytest.raises(RecipeError) as caught:
        load_recipe(folder / "recipe.yaml")
    assert said.replace("FOLDER", str(folder)) in str(caught.value)


def test_a_file_that_is_not_there_and_an_option_that_is_misspelt(world: World, folder: Path) -> None:
    for entry, said in (
        ("captals.yaml", "there is no file"),
        ("{suite: capitals.yaml, shts: 1}", "unknown key eval.suites.0.shts\n  fix: did you mean shots?"),
    ):
        text = f"inputs: {{checkpoint: {world.checkpoint}}}\nstages: {{eval: {{suites: [{entry}]}}}}\n"
        (folder / "recipe.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(RecipeError) as caught:
            load_recipe(folder / "recipe.yaml")
        assert said in str(caught.value)


def suite(folder: Path, **keys: Any) -> Suite:
    (folder / "mine.yaml").write_text(yaml.safe_dump({"rows": "capitals.jsonl"} | keys), encoding="utf-8")
    return SUITES.read("mine.yaml")


@pytest.mark.parametrize(
    ("answer", "golds"),
    [
        ("key", [0, 1]),
        ("choices.text[2]", [2, 2]),
        ("'1'", [1, 1]),
        ("[0, 'D']", [(0, 3)] * 2),
        ("{{choices.text[0]}}", [0, 0]),
    ],
)
def test_the_right_option_by_number_letter_or_text(folder: Path, answer: str, golds: list[Any]) -> None:
    made: Any = suite(folder, question="{{question}}", options="choices.text", answer=answer)
    items = [made.item(row, "here") for row in rows(CITIES)[:2]]
    assert [(item.gold, *item.also_gold) if item.also_gold else item.gold for item in items] == golds


def test_words_that_yaml_takes_for_something_else_stay_words(folder: Path) -> None:
    """BoolQ's two answers: YAML 1.1 reads `no` as false."""
    (folder / "mine.yaml").write_text("rows: capitals.jsonl\nquestion: x\noptions: [no, yes, 1.0]\nanswer: 1 == 1\n")
    made: Any = SUITES.read("mine.yaml")
    item = made.item({}, "here")
    assert (item.choices, item.gold) == (("no", "yes", "1.0"), 1)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"options": "choices.label", "answer": "'E'"}, "the right choice is 'E', and there are 4 choices"),
        ({"options": "key", "answer": "key"}, "options: 'A' is no list of two or more"),
        ({"options": "choices.txt", "answer": "key"}, "has no attribute 'txt'"),
        ({"answer": "choices.text[9]"}, "the row does not fit"),
    ],
)
def test_a_row_that_does_not_fit_is_named(folder: Path, keys: dict[str, str], said: str) -> None:
    made: Any = suite(folder, question="{{question}}", **keys)
    read = made.item if "options" in keys else made.short
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read(rows(CITIES)[0], "rows.jsonl:7")
    assert "rows.jsonl:7" in str(caught.value)
