"""Options of `eval` and `synthesize` that would be taken and ignored: refused when the recipe is read, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ingot.evals.bases.suites import SUITES
from ingot.evals.config import EvalConfig
from ingot.post.synthesis.config import SynthesizeConfig
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.workspace.errors import RecipeError

SERVER = {"url": "http://127.0.0.1:1/v1", "model": "served"}
REPHRASE, GREEDY = {"task": "rephrase"}, {"temperature": 0, "top_p": 0.5}
ATTEMPTS: dict[str, Any] = {"environments": [{"environment": "arithmetic"}], "endpoint": SERVER}


def read(folder: Path, **stages: dict[str, Any]) -> Recipe:
    """The recipe of these stages; `given` is a checkpoint on disk."""
    (folder / "given").mkdir(exist_ok=True)
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    return load_recipe(file)


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [("eval", {"suites": ["gsm8k"], "endpoint": SERVER}, "measured"), ("synthesize", ATTEMPTS, "asked")],
)
def test_a_server_and_a_checkpoint_are_not_both_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: dict[str, Any], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RecipeError, match=rf"{kind}.endpoint: the server is {named}, not the checkpoint in inputs.*leave"
    ):
        read(tmp_path, **{kind: {**options, "inputs": {"checkpoint": "./given"}}})
    assert read(tmp_path, **{kind: options}).stage(kind).inputs == {}


def test_the_scores_of_a_server_are_filed_under_no_earlier_checkpoint(tmp_path: Path) -> None:
    """A checkpoint that an earlier stage makes is not taken either, unless `endpoint` is left out."""
    (tmp_path / "given").mkdir()
    given = {"checkpoint": str(tmp_path / "given")}
    sft = {"steps": 1, "sequence_length": 64, "inputs": given}
    claims = [{"metric": "gsm8k/verified", "stage": "eval", "above": 0.0}]
    recipe = read(tmp_path, sft=sft, eval={"suites": ["gsm8k"], "endpoint": SERVER}, verdict={"claims": claims})
    assert [*cast("Mapping[str, object]", recipe.stage("verdict").inputs["scores"])] == ["eval"]


@pytest.mark.parametrize(
    "options", [{"device": "cuda"}, {"precision": "float32"}, {"tensor": 2}, {"slots": 8}, {"every": 10}]
)
def test_options_of_weights_here_mean_nothing_to_a_server(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: .*server.*leave"):
        EvalConfig.model_validate({"endpoint": SERVER, **options})
    spelt_out = EvalConfig.model_validate({"endpoint": SERVER}).model_dump(mode="json")
    assert EvalConfig.model_validate(spelt_out).endpoint is not None  # a stage's recipe.yaml holds every default


def test_a_server_counts_no_tokens_of_an_attempt() -> None:
    (entry,) = ATTEMPTS["environments"]
    with pytest.raises(ValueError, match=r"environments.0.max_length: .*max_tokens"):
        SynthesizeConfig.model_validate({**ATTEMPTS, "environments": [{**entry, "max_length": 512}]})
    own = SynthesizeConfig.model_validate({"environments": [{**entry, "max_length": 512}]})
    assert own.environments[0].max_length == 512


def test_sampling_of_synthesize_that_nothing_does() -> None:
    with pytest.raises(ValueError, match="top_p: greedy"):
        SynthesizeConfig.model_validate({**ATTEMPTS, "environments": [], "tasks": [REPHRASE], **GREEDY})
    with pytest.raises(ValueError, match="endpoint, temperature, top_p: these tasks ask no model"):
        SynthesizeConfig.model_validate({"tasks": [{"task": "count"}], "endpoint": SERVER, **GREEDY})


def test_a_checkpoint_brings_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"suites": ["gsm8k"], "tokenizer": "folder", "inputs": {"checkpoint": "./given"}}
    with pytest.raises(RecipeError, match=r"eval.tokenizer: .*checkpoint.*its own.*leave it out"):
        read(tmp_path, eval=options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"form": "text", "suites": ["tasks"]}, "form: tasks is always asked in a conversation"),
        ({"form": "text", "suites": ["mmlu", "bfcl"]}, "form: bfcl is always asked in a conversation"),
        ({"form": "chat", "suites": ["bits_per_byte", "needle"]}, "form: bits_per_byte, needle: none of them asks"),
        (
            {"thinking": "both", "suites": ["bits_per_byte", "text_bits"]},
            "thinking: bits_per_byte, text_bits: none of them",
        ),
        ({"thinking": "off", "form": "text", "suites": ["mmlu"]}, "thinking: a plain text has none"),
    ],
)
def test_a_form_and_a_way_of_thinking_that_no_suite_takes(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EvalConfig.model_validate(options)


def test_some_suite_takes_them() -> None:
    both = EvalConfig.model_validate({"thinking": "both", "form": "chat", "suites": ["tasks", "bits_per_byte"]})
    assert [suite.thinks for suite in both.suites] == [True, False]
    assert EvalConfig.model_validate({"form": "text", "suites": ["mmlu", "text_bits"]}).form == "text"


def test_a_task_of_the_harness_that_reads_whole_texts_lets_no_model_think(tmp_path: Path) -> None:
    """Read from its file and those it includes, before anything is loaded; beside another suite it is measured once."""
    (tmp_path / "base.yaml").write_text("output_type: loglikelihood_rolling\ndataset_path: json\n")
    (tmp_path / "mine.yaml").write_text("include: base.yaml\ntask: texts\n")
    (tmp_path / "other.yaml").write_text("include: mine.yaml\ntask: answers\noutput_type: generate_until\n")
    texts, answers = (
        {"suite": "lm_eval", "task": name, "include_path": str(tmp_path)} for name in ("texts", "answers")
    )
    with pytest.raises(ValueError, match="thinking: lm_eval: none of them lets the model think; leave it out"):
        EvalConfig.model_validate({"thinking": "on", "suites": [texts]})
    mixed = EvalConfig.model_validate({"thinking": "both", "suites": [{**texts, "name": "texts"}, answers, "mmlu"]})
    assert [suite.can_think for suite in mixed.suites] == [False, True, True]


def test_a_recipe_names_a_task_of_the_harness_as_the_command_line_does(tmp_path: Path) -> None:
    recipe = read(tmp_path, measured={"stage": "eval", "suites": ["lm_eval:wikitext"], "endpoint": SERVER})
    (suite,) = cast("EvalConfig", recipe.stage("measured").config).suites
    assert suite.model_dump(include={"suite", "task"}) == {"suite": "lm_eval", "task": "wikitext"}


CONVERSATIONS = {
    *("bfcl", "bfcl_multi_turn", "mrcr", "mt_bench", "multi_turn_instructions"),
    *("preferences", "puzzles", "sycophancy", "tasks", "tau"),
}


def test_what_a_suite_says_of_itself_is_what_its_file_asks() -> None:
    """A file that asks conversations or plays episodes takes no plain text; one that asks neither these nor questions, none."""
    import inspect

    for name, kind in SUITES.builtin().items():
        source = inspect.getsource(inspect.getmodule(kind) or kind)
        assert (kind.forms == ("chat",)) == (name in CONVERSATIONS), name
        if "Play(" in source or "Generation(Conversation" in source:
            assert kind.forms == ("chat",), name
        if "PlainText(" in source or "Passage(" in source or "TokenLikelihood(" in source:
            assert not kind.forms and not kind.thinks, name


@pytest.mark.parametrize(
    ("suite", "problem"),
    [
        ({"suite": "tasks", "top_p": 0.9}, "top_p: .*temperature above 0"),
        ({"suite": "gsm8k", "top_p": 0.9}, "top_p: .*temperature above 0"),
        ({"suite": "mmlu", "answer": "written", "top_p": 0.9}, "top_p: .*temperature above 0"),
        ({"suite": "aime", "temperature": 0, "samples": 1, "top_p": 0.9}, "top_p: .*temperature above 0"),
        ({"suite": "hellaswag", "draw": "first"}, "draw: there are no worked examples"),
        ({"suite": "mt_bench", "temperature": 0.5}, "temperature: .*category"),
        ({"suite": "continuations", "texts": ["a"], "held_out": False}, "held_out: .*no numbers"),
        ({"suite": "continuations", "texts": ["a"], "name": "mine"}, "name: .*no numbers"),
        ({"suite": "preferences", "kinds": [{"kind": "strings", "samples": 2}]}, "samples"),
        ({"suite": "tasks", "kinds": [{"kind": "strings"}], "difficulty": {"calculator": {}}}, "difficulty.calculator"),
        ({"suite": "preferences", "difficulty": {"strings": {}}}, "difficulty.strings"),
        ({"suite": "puzzles", "difficulty": {"strings": {}}}, "difficulty.strings"),
    ],
)
def test_options_of_suites_that_would_be_ignored(suite: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EvalConfig.model_validate({"suites": [suite]})


def test_null_takes_the_options_of_a_kind_away() -> None:
    difficulty = {"strings": None, "arithmetic": {"digits_min": 1}}
    read = EvalConfig.model_validate({"suites": [{"suite": "preferences", "difficulty": difficulty}]})
    assert list(read.suites[0].difficulty.model_extra) == ["arithmetic"]  # type: ignore[attr-defined]


REQUIRED: dict[str, dict[str, Any]] = {
    "continuations": {"texts": ["a"]},
    "icl": {"task": "winograd_wsc"},
    "inspect": {"task": "file.py:name"},
    "lm_eval": {"task": "piqa"},
}


def test_options_that_a_stage_spells_out_are_taken_again() -> None:
    """recipe.yaml of a stage's folder holds every default, also of options that another one switches off."""
    for name in SUITES.names():
        config = EvalConfig.model_validate({"suites": [{"suite": name, **REQUIRED.get(name, {})}]})
        assert EvalConfig.model_validate(config.model_dump(mode="json")) == config, name
    written = EvalConfig.model_validate({"suites": [{"suite": "mmlu", "answer": "written"}]})
    assert EvalConfig.model_validate(written.model_dump(mode="json")) == written
