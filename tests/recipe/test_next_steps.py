"""What a newcomer does after the quickstart: own texts, own conversations, a published model; each by one command."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import textwrap
from pathlib import Path

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.checkpoints.convert import export_model
from ingot.envs.tasks.small_talk import SmallTalk
from ingot.evals.scores.scores import load_scores
from ingot.recipe.flow import RunResult, run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.single import load_stage
from ingot.tokens.chat import Message
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.files import read_json, read_jsonl
from ingot.workspace.outside import load_outside
from tests.evals.conftest import World
from tests.evals.conftest import world as world
from tests.making.rows import write_rows
from tests.train.toy import same_weights

RECIPES = Path(__file__).parents[2] / "recipes"
TEXTS = [inspect.getsource(module) for module in (textwrap, json, shutil, inspect)]


def run_stage(name: str, kind: str, changes: list[str], inputs: dict[str, str], runs: Path) -> RunResult:
    recipe, names = load_stage(RECIPES / name, kind, changes, inputs=inputs)
    return run_recipe(recipe, runs, only=names)


def test_own_texts(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number, text in enumerate("\n".join(TEXTS).split("\n\n\n")):
        (texts / f"{number}.txt").write_text(text, encoding="utf-8")
    changes = [f"curate.sources.0.files={texts}", "tokenizer.vocabulary_size=300", "verdict=null"]
    changes += ["pretrain.steps=2", "pretrain.validate_every=2", "eval.suites.0.rows=2"]
    result = run_recipe(load_recipe(RECIPES / "own-text.yaml", changes), tmp_path / "runs")
    assert [stage.status for stage in result.stages] == ["done"] * 5
    assert result.stages[0].summary["documents"] > 20


def test_own_text_of_a_single_file(tmp_path: Path) -> None:
    """A part of it is held out."""
    text = tmp_path / "book.txt"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    changes = [f"curate.sources.0.files={text}", "tokenizer.vocabulary_size=300", "verdict=null", "eval=null"]
    changes += ["pretrain.steps=2", "pretrain.validate_every=2"]
    result = run_recipe(load_recipe(RECIPES / "own-text.yaml", changes), tmp_path / "runs")
    assert [stage.status for stage in result.stages] == ["done"] * 4
    tokens = {name: each["tokens"] for name, each in result.stages[2].summary["sources"].items()}
    assert 0 < tokens["validation"] < tokens["text"] / 3


@pytest.mark.parametrize("name", ["own-conversations", "own-conversations-lora"])
def test_own_conversations(name: str, world: World, tmp_path: Path) -> None:
    """From a checkpoint, with the tasks of the quickstart among them."""
    own = tmp_path / "own.jsonl"
    turns = [{"role": "user", "content": "Ping"}, {"role": "assistant", "content": "Pong"}]
    write_rows(own, [{"messages": turns, "thinking": False}])
    changes = [f"files=[{own}]", "steps=2", "task_conversations=6", "batch_conversations=4", "device=cpu"]
    result = run_stage(f"{name}.yaml", "sft", changes, {"checkpoint": str(world.checkpoint)}, tmp_path)
    assert result.stages[0].summary["conversations"] >= 6
    assert result.checkpoint is not None and load_model(result.checkpoint / "checkpoint").tokenizer is not None
    if name.endswith("lora"):  # what was trained is in PEFT's files too, and its base is named
        adapter = result.stages[0].folder / "adapter"
        named = Path(read_json(adapter / "adapter_config.json")["base_model_name_or_path"])
        assert named == adapter.parent.absolute() / "base" and same_weights(
            load_model(named).state_dict(), load_model(world.checkpoint).state_dict()
        )
        again = load_model(world.checkpoint, adapter=adapter).state_dict()
        merged = load_model(result.checkpoint).state_dict()
        assert all(torch.equal(value, again[name]) for name, value in merged.items())


def test_a_soup_of_two_fine_tunes(world: World, tmp_path: Path) -> None:
    """Two fine-tunes of one checkpoint, with other seeds, their mean, and the sum of their differences from the start."""
    small = {
        "stage": "sft", "inputs": {"checkpoint": str(world.checkpoint)}, "steps": 2, "sequence_length": 256,
        "batch_conversations": 4, "task_conversations": 6, "device": "cpu", "precision": "float32",
        "tasks": {"weights": {"small_talk": 1.0}},
    }  # fmt: skip
    start = str(world.checkpoint)
    stages = {
        "one": small | {"seed": 1},
        "two": small | {"seed": 2},
        "soup": {"stage": "merge", "inputs": {"checkpoints": ["one", "two"]}},
        "sum": {
            "stage": "merge", "method": "task_arithmetic", "base": "start", "weights": [1.0, 0.5],
            "inputs": {"checkpoints": {"one": "one", "two": "two", "start": start}},
        },
    }  # fmt: skip
    (tmp_path / "soup.yaml").write_text(json.dumps({"name": "soup", "stages": stages}), encoding="utf-8")
    result = run_recipe(load_recipe(tmp_path / "soup.yaml"), tmp_path / "runs")
    one, two, soup, added = (load_model(stage.folder).state_dict() for stage in result.stages)
    base = load_model(world.checkpoint).state_dict()
    for name, value in soup.items():
        torch.testing.assert_close(value, (one[name] + two[name]) / 2)
        expected = base[name] + (one[name] - base[name]) + 0.5 * (two[name] - base[name])
        torch.testing.assert_close(added[name], expected)
    assert any(not torch.equal(one[name], two[name]) for name in one)


def test_a_published_model_needs_no_shards(world: World, tmp_path: Path) -> None:
    """A Hugging Face folder: what it writes is what transformers writes with it."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "published"
    export_model(world.checkpoint, folder)
    changes = [
        "max_tokens=100",
        "suites.0.kinds.0.count=2",
        "suites.0.max_new_tokens=4",
        "suites.1.tokens=8",
        "device=cpu",
    ]
    result = run_stage("real-model.yaml", "eval", changes, {"checkpoint": str(folder)}, tmp_path)
    rows = read_jsonl(result.stages[0].folder / "scores" / "samples.jsonl")
    asked = [row for row in rows if row["kind"] == "continuation"]
    assert len(asked) == 3 and sum(row["kind"] == "sums" for row in rows) == 2

    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ends = sorted(world.tokenizer.ends)
    for row in asked:
        prompt = torch.tensor([[*world.tokenizer.opening, *world.tokenizer.encode(row["prompt"])]])
        written = peer.generate(prompt, max_new_tokens=8, do_sample=False, eos_token_id=ends, pad_token_id=ends[0])
        assert world.tokenizer.decode(written[0, prompt.shape[1] :].tolist()) == row["completion"]


def test_a_chat_is_measured_as_people_type_it(world: World, tmp_path: Path) -> None:
    """Questions after others or first, by the recipe, and by the reward of a right answer and of a wrong one."""
    kind = load_outside(f"{RECIPES}/quickstart_chat.py:Chat")
    for asked in ("small_talk", "calculator", "arithmetic", "strings"):
        chat = kind(asked=asked)
        tasks = chat.generate(1, 40, "test")
        assert {task.messages[-1].role for task in tasks} == {"user"}
        assert {len(task.messages) == 1 for task in tasks} == {True, False}
        assert all(task.schemas[0]["name"] == "calculator" for task in tasks)
        for task in tasks:
            right, wrong = (chat.score(task, [Message("assistant", text, "")]) for text in (task.answer, "?"))
            assert (right.reward, wrong.reward) == (1, 0)
    changes = [change for suite in range(5) for change in (f"suites.{suite}.kinds.0.count=2", "max_tokens=1000")]
    inputs = {"checkpoint": str(world.checkpoint)}
    result = run_stage("quickstart-chat.yaml", "eval", changes, inputs, tmp_path)
    scores = load_scores(result.stages[0].folder)
    assert {
        "talk/accuracy/chat",
        "other_words/accuracy/chat",
        "calls/accuracy/chat",
        "sums/accuracy/chat",
        "words/accuracy/chat",
    } <= set(scores)


def test_other_words_of_a_chat_are_in_no_training_conversation() -> None:
    """Whatever capitals and marks: of 20,000 training questions none is among the words that the chat eval holds out."""
    kind = load_outside(f"{RECIPES}/quickstart_chat.py:Chat")
    held_out = [task.question for task in kind(unseen=True).generate(1, 200, "test")]
    trained = [task.question for task in SmallTalk().generate(1, 20_000, "train")]
    plain, seen = ({re.sub("[^a-z ]", "", text.lower()) for text in texts} for texts in (held_out, trained))
    assert len(plain) > 25 and not plain & seen


def test_a_suite_on_held_out_text_says_what_it_lacks(world: World, tmp_path: Path) -> None:
    changes = ["suites=[bits_per_byte]", "device=cpu"]
    with pytest.raises(ArtifactError, match="has no shards") as caught:
        run_stage("real-model.yaml", "eval", changes, {"checkpoint": str(world.checkpoint)}, tmp_path)
    assert "--input shards=PATH" in str(caught.value)


def test_the_quickstart_names_them(tmp_path: Path) -> None:
    """Every recipe that it names is there, and a list of anything but commands is an error."""
    suggested = load_recipe(RECIPES / "quickstart.yaml").next
    named = {word for line in suggested for word in line.split() if word.endswith(".yaml")}
    assert named == {f"recipes/{name}.yaml" for name in ("own-text", "own-conversations", "real-model")}
    assert all((RECIPES.parent / name).exists() for name in named)
    with pytest.raises(RecipeError, match="next: expected a list of commands"):
        (tmp_path / "bad.yaml").write_text(f"extends: {RECIPES}/quickstart.yaml\nnext: 7\n", encoding="utf-8")
        load_recipe(tmp_path / "bad.yaml")


def test_inputs_are_named_as_people_name_them(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the README has it: RUNS/NAME/STAGE is the last finished folder of that stage, RUNS/NAME its last checkpoint."""
    monkeypatch.chdir(tmp_path)
    row = {"messages": [{"role": "user", "content": "Ping"}, {"role": "assistant", "content": "Pong"}]}
    write_rows(Path("own.jsonl"), [row])
    small = ["files=[own.jsonl]", "steps=1", "task_conversations=4", "batch_conversations=4"]
    folder = Path("runs/quickstart/distill-0123456789ab")
    shutil.copytree(world.checkpoint, folder / "checkpoint")
    (folder / "DONE").write_text("{}", encoding="utf-8")
    listed = [{"name": "distill", "folder": folder.name}]
    Path("runs/quickstart/run.json").write_text(json.dumps({"stages": listed}), encoding="utf-8")
    for given in ({}, {"checkpoint": "runs/quickstart"}):
        recipe, names = load_stage(RECIPES / "own-conversations.yaml", "sft", small, inputs=given)
        assert run_recipe(recipe, tmp_path / "runs", only=names).checkpoint is not None
    with pytest.raises(RecipeError, match="runs/quickstart/sft is neither an earlier stage nor an existing path"):
        load_stage(RECIPES / "own-conversations.yaml", "sft", small, inputs={"checkpoint": "runs/quickstart/sft"})
