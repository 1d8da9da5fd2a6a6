"""The stage `prefer` from checkpoint to checkpoint: people's files, two models, and the current policy's own answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.rows import read_rows
from ingot.post import prefer
from ingot.post.data.pairs.pair_rows import read_row
from ingot.post.prefer_config import PreferConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.data.synthesize.server import Reply, completion, serving
from tests.making.rows import write_rows
from tests.post.making import SUMS, checkpoint_of, nudged, tiny_model
from tests.slow import first_fast

MakeFolder = Callable[[str], StageFolder]
SHORT = {"sequence_length": 128, "precision": "float32", "device": "cpu"}
LAST = 5  # steps whose mean is looked at


@pytest.fixture(scope="session")
def people(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short pairs of real people: as pairs, and as rated answers."""
    folder = tmp_path_factory.mktemp("people")
    rows = [row for _, row in read_rows(str(shared_data / "rasbt_instruct/instruction_data_with_preference.jsonl.gz"))]
    short = [row for row in rows if len("".join(row[key] for key in ("instruction", "input", "rejected"))) < 105][:12]
    pairs = [{key: row[key] for key in ("instruction", "input", "chosen", "rejected")} for row in short]
    write(folder / "pairs.jsonl", [row | {"thinking": False} for row in pairs])
    rated = [
        {"prompt": f"{row['instruction']}\n{row['input']}", "completion": row[name], "label": name == "chosen"}
        for row in pairs
        for name in ("chosen", "rejected")
    ]
    write(folder / "rated.jsonl", [row | {"thinking": False} for row in rated])
    return folder


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    write_rows(path, rows)
    return str(path)


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    first_fast(  # test_prefer_losses.py and test_prefer_peer.py have the formulas
        [
            ({"algorithm": "dpo"}, 14),  # with a reference
            ({"algorithm": "simpo"}, 14),  # without
            ({"algorithm": "kto"}, 50),  # rated answers instead of pairs
            ({"algorithm": "ipo"}, 14),
            ({"algorithm": "orpo", "beta": 3.0}, 28),  # 0.1 leaves nearly all to the cross-entropy, which is slow here
            ({"algorithm": "apo_zero"}, 14),
            ({"algorithm": "apo_down"}, 24),
        ]
    ),
    ids=lambda value: value["algorithm"] if isinstance(value, dict) else "",
)
def test_every_loss_learns_what_people_prefer(
    algorithm: dict[str, Any], steps: int, people: Path, tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    base = checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")
    name = algorithm["algorithm"]
    file = str(people / ("rated.jsonl" if name == "kto" else "pairs.jsonl"))
    pairs = {"files": (file,), "too_long": "leave_out"}
    options = {"steps": steps, "pairs": pairs, "algorithm": algorithm, "optimizer": {"lr": 1e-2}, "batch_pairs": 8}
    folder = make_folder(name)
    summary = prefer.run(PreferConfig.model_validate(SHORT | options), {"checkpoint": base}, folder)
    accuracy = [row["preference_accuracy"] for row in folder.metrics.read()]
    assert fmean(accuracy[:LAST]) < 0.9 < fmean(accuracy[-LAST:])
    assert (folder.path / "reference").exists() == (name not in ("simpo", "orpo"))
    assert summary["rows_too_long"] >= 0 and load_model(folder.path).tokenizer is not None


def test_lengths_before_and_after_the_cap(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """Of four pairs two differ by more than the cap, both with the longer answer chosen; the table says so."""
    answers = [("a" * 30, "b"), ("c" * 20, "d"), ("e", "f" * 3), ("g" * 4, "h")]
    rows = [{"prompt": "?", "chosen": one, "rejected": other, "thinking": False} for one, other in answers]
    file = write(tmp_path / "pairs.jsonl", rows)
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    options = {"steps": 1, "pairs": {"files": (file,)}, "length_gap": 8, "batch_pairs": 2, "algorithm": "simpo"}
    summary = prefer.run(PreferConfig.model_validate(SHORT | options), {"checkpoint": base}, make_folder("prefer"))
    lengths = {name: (row["pairs"], row["mean"], row["longer_share"]) for name, row in summary["lengths"].items()}
    end = 1  # the token that ends a turn
    count = [[len(tokenizer.encode(text)) + end for text in pair] for pair in answers]
    assert lengths == {
        "chosen, before the cap": (4, fmean(pair[0] for pair in count), 0.75),
        "rejected, before the cap": (4, fmean(pair[1] for pair in count), 0.25),
        "chosen, after the cap": (2, fmean(pair[0] for pair in count[2:]), 0.5),
        "rejected, after the cap": (2, fmean(pair[1] for pair in count[2:]), 0.5),
    }


def test_the_content_of_a_file_is_part_of_the_stage(tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.jsonl", [{"prompt": "?", "chosen": "a", "rejected": "b"}])
    config = PreferConfig.model_validate(SHORT | {"steps": 1, "pairs": {"files": (file,)}})
    before = config.outside()
    write(tmp_path / "pairs.jsonl", [{"prompt": "?", "chosen": "a", "rejected": "c"}])
    assert before.keys() == config.outside().keys() != set()
    assert before != config.outside()


def test_pairs_of_a_strong_and_a_weak_model(
    schooled: StageFolder, tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    """The student learns to prefer the better answers of two models to its own tasks, and asks neither twice."""
    weak = checkpoint_of(nudged(load_model(schooled.path), 0.15, seed=3), tmp_path / "weak")
    base = checkpoint_of(tiny_model(tokenizer, seed=5, std=0.05), tmp_path / "base")
    sampling = {"tasks": SUMS, "prompts": 60, "max_new_tokens": 4, "temperature": 0.3, "pairs_per_task": 1}
    options = {"steps": 12, "batch_pairs": 8, "optimizer": {"lr": 1e-2}} | sampling
    config, folder = PreferConfig.model_validate(SHORT | options), make_folder("prefer")
    summary = prefer.run(config, {"checkpoint": base, "strong": schooled.path, "weak": weak}, folder)
    written = read_jsonl(folder.path / "pairs.jsonl")
    assert len(written) == summary["pairs"] >= 8
    assert summary["pairs"] + summary["prompts_without_a_pair"] <= 60
    strong, worse = (fmean(row["rewards"][side] for row in written) for side in (0, 1))
    assert strong > worse
    accuracy = [row["preference_accuracy"] for row in folder.metrics.read()]
    assert fmean(accuracy[-LAST:]) > 0.8
    assert read_row(written[0]).answers[0][0].content != read_row(written[0]).answers[1][0].content


@pytest.mark.parametrize(
    ("options", "inputs", "message"),
    [
        ({"pairs": {"prompt_files": ("a",)}}, {}, "answered by `strong` and `weak`"),
        ({}, {"weak": Path("w")}, "need both `strong` and `weak`"),
        ({"algorithm": "kto"}, {"strong": Path("s"), "weak": Path("w")}, "kto takes single answers"),
        ({"pairs": {"files": ("a",)}}, {"strong": Path("s"), "weak": Path("w")}, "either from `files` or from"),
        (
            {"pairs": {"strong": {"model": "m"}, "weak": {"model": "n"}}},
            {"strong": Path("s")},
            r"pairs.strong and inputs.strong both name a model",
        ),
    ],
)
def test_models_that_inputs_name_are_checked_as_those_of_the_options(
    options: dict[str, Any], inputs: dict[str, Path], message: str
) -> None:
    config = PreferConfig.model_validate(SHORT | {"steps": 1} | options)
    with pytest.raises(RecipeError, match=message):
        prefer.with_answerers(config, inputs)


def test_a_server_as_the_strong_model_on_prompts_of_a_file(
    schooled: StageFolder, tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    questions = ["What is 1 + 2?", "What is 2 + 2?", "What is 3 + 1?", "What is 0 + 5?"]
    file = write(tmp_path / "prompts.jsonl", [{"prompt": question, "thinking": False} for question in questions])
    asked = []

    def answer(body: dict[str, Any], _: dict[str, str]) -> Reply:
        asked.append(body["messages"][-1]["content"])
        return completion("a fine answer")

    with serving(answer) as url:
        strong = {"endpoint": {"url": url, "model": "strong"}}
        pairs = {"strong": strong, "weak": {"model": str(schooled.path)}, "prompt_files": (file,)}
        options = {"steps": 2, "pairs": pairs, "batch_pairs": 2, "max_new_tokens": 16, "algorithm": "simpo"}
        config, folder = PreferConfig.model_validate(SHORT | options), make_folder("prefer")
        summary = prefer.run(config, {"checkpoint": schooled.path}, folder)
    rows = read_jsonl(folder.path / "pairs.jsonl")
    assert sorted(asked) == sorted(questions)
    assert summary["pairs"] == len(rows) >= 2
    assert {row["chosen"][0]["content"] for row in rows} == {"a fine answer"}


def online_config(**options: Any) -> PreferConfig:
    sampling = {"tasks": SUMS, "prompts": 40, "samples": 4, "max_new_tokens": 4, "sequence_length": 64}
    pairs = {"refresh": 2, "choose": "best_worst"}
    algorithm = {"algorithm": "dpo", "beta": 1.0}
    training = {"pairs": pairs, "optimizer": {"lr": 3e-3}, "batch_pairs": 32, "algorithm": algorithm}
    return PreferConfig.model_validate(SHORT | sampling | training | options)


def test_online_pairs_are_those_of_the_policy_as_it_is(schooled: StageFolder, make_folder: MakeFolder) -> None:
    """A new round every second step, without ties; the reference stays the input checkpoint."""
    folder = make_folder("prefer")
    prefer.run(online_config(steps=4, prompts=30), {"checkpoint": schooled.path}, folder)
    rows = folder.metrics.read()
    assert [row["reward"] for row in rows[::2]] == [row["reward"] for row in rows[1::2]]
    assert rows[0]["reward"] != rows[2]["reward"]
    assert rows[0]["preference"] == pytest.approx(math.log(2), abs=1e-5)  # the policy is the reference
    assert abs(rows[2]["preference"] - math.log(2)) > 1e-3  # new answers, but not a new reference
    last = read_jsonl(folder.path / "pairs.jsonl")
    assert len(last) == rows[-1]["pairs"]
    assert all(row["rewards"][0] > row["rewards"][1] for row in last)


@pytest.mark.slow
def test_online_pairs_raise_the_reward(schooled: StageFolder, make_folder: MakeFolder) -> None:
    folder = make_folder("prefer")
    prefer.run(online_config(steps=48, prompts=60), {"checkpoint": schooled.path}, folder)
    rewards = [row["reward"] for row in folder.metrics.read()[::2]]
    assert fmean(rewards[-6:]) > fmean(rewards[:6]) + 0.05


@pytest.mark.parametrize("page", ["dpo", "preferences", "preference-pairs"])
def test_the_snippets_of_the_documentation_are_stages(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "methods" / f"{page}.md").read_text(encoding="utf-8")
    snippets = text.split("```yaml\n")[1:]
    assert snippets
    for snippet in snippets:
        (kind, options), *others = yaml.safe_load(snippet.split("```")[0]).items()
        assert (kind, others) == ("prefer", [])
        PreferConfig.model_validate_json(json.dumps({"steps": 1, "sequence_length": 8, **options}), strict=True)
