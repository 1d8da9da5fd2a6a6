"""`ingot model`: what it prints for presets, checkpoints and files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.cli import main
from ingot.cli.show_model import length_words, parameters
from ingot.model.config import ModelConfig
from ingot.model.describe import describe_block, layer_groups
from ingot.model.layers import expand_layers
from ingot.model.presets.data import names
from ingot.model.presets.preset import preset, presets
from ingot.model.transformer import Transformer
from ingot.tokens.syntax import formats
from tests.model import tiny
from tests.tokens.formats.wires import SPECIAL, make_tokenizer, template

Ingot = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ingot:
    """`ingot model ARGUMENTS`: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ingot", "model", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def test_list_has_every_preset(run: Ingot) -> None:
    code, out, _ = run("list")
    rows = {line.split()[0]: line.split() for line in out.split("\n") if line}
    assert code == 0
    assert set(names()) <= set(rows)
    assert rows["deepseek-v3"][1:] == ["671B", "37.6B", "160k", "70.3kB", "11.5GB", "261G"]
    assert rows["qwen3-8b"][1:] == ["8.19B", "32k", "147kB", "4.83GB", "49G"]


def test_list_as_json(run: Ingot) -> None:
    _, out, _ = run("list", "--json", "--length", "2048")
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == list(names())
    v3 = rows["deepseek-v3"]
    assert (v3["parameters"], v3["cache_bytes_per_token"], v3["training_flops_length"]) == (671026404352, 70272, 2048)
    assert rows["qwen3-8b-mini"]["training_flops_length"] == 256


def test_show_draws_the_pattern_and_explains_the_difference(run: Ingot) -> None:
    code, out, _ = run("show", "kimi-linear-48b-a3b")
    assert code == 0
    assert "■◆◆● ◆◆◆● ◆◆◆● ◆◆◆● ◆◆◆● ◆◆◆● ◆◆●" in out
    assert "layers: dense kda*2 mla (kda*3 mla)*5 kda*2 mla" in out
    assert "why: 3B is rounded" in out
    assert "MuonClip" in out


def test_every_reason_is_printed(run: Ingot) -> None:
    for one in presets():
        if one.published and one.published.reason and one.name in ("kimi-k2", "llama4-scout", "deepseek-v3.2"):
            _, out, _ = run("show", one.name)
            assert one.published.reason in " ".join(out.split())


def test_show_as_json(run: Ingot) -> None:
    _, out, _ = run("show", "kimi-k2", "--json")
    shown = json.loads(out)
    assert ModelConfig.model_validate(shown["model"]) == preset("kimi-k2")
    assert shown["mixtures"]["moe"]["sparsity"] == 48
    assert shown["published"]["total"] == 1_040_000_000_000
    assert sum(part["total"] for part in shown["parts"].values()) == shown["parameters"] - 2 * 163840 * 7168


def test_show_of_a_checkpoint_a_recipe_and_a_file(run: Ingot, tmp_path: Path) -> None:
    config = preset("smollm3-3b-mini").model_copy(update={"vocabulary_size": 300})
    save_checkpoint(tmp_path / "saved", Transformer(config))
    (tmp_path / "model.yaml").write_text("preset: smollm3-3b-mini\nvocabulary_size: 300\n")
    (tmp_path / "recipe.yaml").write_text(
        "stages:\n  pretrain:\n    steps: 1\n    batch_tokens: 256\n    sequence_length: 256\n"
        "    phases: [{until: 1.0, weights: {all: 1}}]\n    inputs: {tokenizer: saved, shards: saved}\n"
        "    model: {preset: smollm3-3b-mini, vocabulary_size: 300}\n"
    )
    for path in ("saved", "model.yaml", "recipe.yaml"):
        code, out, err = run("show", path, "--json")
        assert (code, err) == (0, "")
        assert ModelConfig.model_validate(json.loads(out)["model"]) == config
    assert "■■■◆ ■■■◆" in run("show", "saved")[1]


def test_bad_names_and_files(run: Ingot, tmp_path: Path) -> None:
    code, _, err = run("show", "kimi-k3")
    assert code == 2
    assert "did you mean kimi-k2" in err
    for missing in ("nothing.yaml", "runs/nothing"):
        code, _, err = run("show", missing)
        assert code == 2
        assert f"{missing}: there is no such file or folder" in err
    (tmp_path / "bad.yaml").write_text("preset: smollm3-3b-mini\nwidht: 3\n")
    code, _, err = run("show", "bad.yaml")
    assert code == 2
    assert "bad.yaml:2: unknown key model.widht" in err
    assert "did you mean width?" in err


@pytest.mark.parametrize(
    ("spelling", "drawn"),
    [
        ("a*3", "aaa"),
        ("(a*2 b)*3", "aab aab aab"),
        ("d a*2 b (a*3 b)*3 a", "daab aaab aaab aaab a"),
        ("(a b)*4", "ab ab ab ab"),
        ("d*3 a*14", "dddaaaaa aaaaaaaa a"),
    ],
)
def test_groups_of_a_pattern(spelling: str, drawn: str) -> None:
    assert " ".join("".join(group) for group in layer_groups(expand_layers(spelling))) == drawn


def test_every_block_of_every_preset_is_described() -> None:
    for one in presets():
        texts = [describe_block(block) for block in one.model.blocks.values()]
        assert len(set(texts)) == len(texts), f"{one.name}: two kinds of layer read the same"


def test_numbers_in_words() -> None:
    assert [parameters(value) for value in (671_026_419_200, 999_700_000, 135e6, 887_000, 12)] == [
        "671B",
        "1B",
        "135M",
        "887k",
        "12",
    ]
    assert [length_words(value) for value in (131072, 1048576, 202752, 1000)] == ["128k", "1M", "198k", "1000"]


def test_chat_formats(run: Ingot, tmp_path: Path) -> None:
    """The table; the format of a model and how it was found; a format of one's own, which the model then carries."""
    code, out, _ = run("formats")
    assert (
        code == 0
        and "glm45" in out
        and "GLM-4.5" in out
        and "<tool_call>f<arg_key>k</arg_key>" in out.replace("\n", "")
    )
    assert out.count("…") == sum(bool(syntax.think) for syntax in formats().values())  # no call is cut
    make_tokenizer(SPECIAL["glm45"], template("glm45")).save(tmp_path / "tokenizer")
    code, out, _ = run("formats", "tokenizer")
    assert code == 0 and out.startswith("glm45: the chat template has <arg_key> and <tool_call>\n")
    assert "a special token" in out and out.endswith("a turn ends with <|im_end|>\n")

    model = tiny.random_model(tiny.config(tiny.attention(), vocabulary_size=512))
    model.tokenizer = make_tokenizer([], "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}")
    save_checkpoint(tmp_path / "plain", model)
    code, out, _ = run("formats", "plain")
    assert code == 0 and "plain: no mark was found" in out and "--format FORMAT" in out
    (tmp_path / "mine.yaml").write_text('mine: {states: {content: {"@do ": call}, call: {" @end": content}}}')
    code, _, err = run("template", "plain", "named", "--format", "mine.yaml")
    assert code == 0, err
    code, out, _ = run("formats", "named")
    assert code == 0 and out.startswith("mine: chat_format.yaml declares it\n") and "@do" in out
    code, _, err = run("template", "plain", "other")
    assert code and "nothing to change" in err
    code, _, err = run("template", "plain", "other", "--set", "assistant=me")
    assert code and "name the template whose options they are" in err
