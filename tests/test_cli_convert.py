"""`ingot import` and `ingot export`: what they write, what they say, and how they fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants as constants
import pytest
import torch
import transformers
from safetensors.torch import load_file

import ingot
from ingot.checkpoints.convert import export_model
from ingot.cli import main
from ingot.cli.convert import parse_size
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import config, random_model, random_tokens

Ingot = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ingot:
    """`ingot ARGUMENTS` in a folder with a model: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    export_model(random_model(config(tied_embeddings=False)), "theirs")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ingot", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def test_there_and_back(run: Ingot) -> None:
    code, out, err = run("import", "theirs", "checkpoint")
    assert (code, err) == (0, "")
    assert out.endswith(" MB)\nnext:\n  ingot chat checkpoint\n")
    assert "checkpoint: checkpoint (0." in out
    assert out.count("MB 1/1 ") == out.count("MB/s") == 1  # the end is said once, however many tensors there are
    code, out, err = run("export", "checkpoint", "back folder", "--max-shard-size", "12KB", "--dtype", "bfloat16")
    assert (code, err) == (0, "")
    assert out.endswith("next:\n  ingot chat 'back folder'\n")
    assert "Hugging Face folder: back folder (0." in out
    assert out.count("MB 1/1 ") == out.count("MB/s") == 1
    files = sorted(Path("back folder").glob("*.safetensors"))
    assert len(files) > 1
    original = load_file("theirs/model.safetensors")
    for file in files:
        for name, tensor in load_file(file).items():
            assert torch.equal(tensor, original[name].bfloat16())
    tokens = random_tokens(1, 7)
    assert torch.equal(ingot.load("checkpoint")(tokens), ingot.load("theirs")(tokens))


def test_a_run_and_its_stage_by_name(run: Ingot) -> None:
    assert run("import", "theirs", "runs/mine/sft-12ab/checkpoint")[0] == 0
    Path("runs/mine/sft-12ab/DONE").write_text("{}")
    stages = [{"name": "sft", "folder": "sft-12ab"}]
    Path("runs/mine/run.json").write_text(json.dumps({"name": "mine", "stages": stages}))
    original = load_file("theirs/model.safetensors")
    for source, out in (("runs/mine", "of-run"), ("runs/mine/sft", "of-stage")):
        assert run("export", source, out)[0] == 0
        assert load_file(f"{out}/model.safetensors").keys() == original.keys()
        assert torch.equal(ingot.load(source)(random_tokens(1, 7)), ingot.load("theirs")(random_tokens(1, 7)))
    assert run("model", "show", "runs/mine/sft")[0] == 0
    code, _, err = run("export", "runs/mine/rl", "out")
    assert (code, err.split("\n")[0]) == (2, "error: runs/mine/rl: no checkpoint here")


def test_export_as_another_model_type(run: Ingot) -> None:
    code, _, err = run("export", "theirs", "out", "--as", "smollm3")
    assert (code, err) == (0, "")
    assert isinstance(transformers.AutoConfig.from_pretrained("out"), transformers.SmolLM3Config)
    code, out, err = run("export", "theirs", "other", "--as", "qwen3")
    assert (code, out) == (2, "")
    assert "query_key_norm is 'none', it would become 'head'" in err
    code, _, err = run("export", "theirs", "other", "--as", "gpt9")
    assert code == 2
    assert err.startswith("error: what to export as: unknown model type 'gpt9'\n  fix: known are: ")
    assert not Path("other").exists()


def test_errors_are_messages_with_exit_code_2(run: Ingot) -> None:
    assert run("import", "nowhere", "out")[2].startswith("error: nowhere: no checkpoint here\n  fix: give a checkpoint")
    code, out, err = run("import", "theirs", "theirs")
    assert (code, out) == (2, "")
    assert err.startswith("error: theirs: the folder exists\n  fix: name another one, or replace it with --force")
    values = json.loads(Path("theirs/config.json").read_text())
    Path("theirs/config.json").write_text(json.dumps({**values, "secret_scale": 2}))
    code, _, err = run("import", "theirs", "out")
    assert code == 2
    assert "keys that Ingot does not understand: secret_scale = 2" in err
    weights = Path("theirs/model.safetensors")
    Path("theirs/config.json").write_text(json.dumps(values))
    weights.write_bytes(weights.read_bytes()[:-1])
    code, _, err = run("import", "theirs", "out")
    assert code == 2
    assert err.startswith("error: theirs/model.safetensors: not readable as safetensors")
    Path("bad.gguf").write_bytes(b"GGML")
    code, _, err = run("import", "bad.gguf", "out")
    assert (code, err.split("\n")[0]) == (2, "error: bad.gguf: not a GGUF file: it does not begin with GGUF")
    assert not Path("out").exists()
    assert "Traceback" not in err


def test_export_to_a_gguf_file(run: Ingot) -> None:
    code, out, err = run("export", "theirs", "out.gguf", "--type", "q8_0")
    assert code == 0, err
    assert out.endswith("GGUF file: out.gguf (0.0 MB)\nnext:\n  ingot chat out.gguf\n")
    assert "no tokenizer: a program can give this model token ids only" in out
    code, _, err = run("export", "theirs", "out.gguf")
    assert code == 2 and "the file exists" in err
    assert run("export", "theirs", "out.gguf", "--force")[0] == 0
    for option in (["--dtype", "float16"], ["--as", "llama"], ["--max-shard-size", "1MB"]):
        code, _, err = run("export", "theirs", "new.gguf", *option)
        assert code == 2 and f"{option[0]} does nothing where a GGUF file is written" in err
        assert ("use --type" in err) is (option[0] == "--dtype")
    code, _, err = run("export", "theirs", "folder", "--type", "q8_0")
    assert code == 2 and "--type does nothing where a folder is written" in err
    code, _, err = run("export", "theirs", "folder", "--ollama", "--type", "q8_0")
    assert code == 2 and "Ollama cannot run a model without a tokenizer" in err
    assert sorted(path.name for path in Path().iterdir()) == ["out.gguf", "theirs"]
    assert run("import", "out.gguf", "back")[0] == 0
    assert ingot.load("back").config.vocabulary_size == ingot.load("theirs").config.vocabulary_size


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_folder_is_written_and_no_file(run: Ingot, command: str) -> None:
    if command == "import":
        code, out, err = run(command, "theirs", "out.gguf")
        assert (code, out) == (2, "")
        assert err == (
            "error: out.gguf: a folder would get the name of a GGUF file\n"
            "  fix: name a folder; `ingot export` (export_gguf) writes a GGUF file\n"
        )
    assert (
        "a folder would get this name\n  fix: name a folder, such as out\n"
        in run(command, "theirs", "out.Safetensors")[2]
    )
    assert not list(Path().glob("out*"))


def test_a_name_of_the_hub_says_how_to_fetch_it(run: Ingot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the hub cannot be asked; tests/workspace/test_hub.py asks one."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, out, err = run("chat", "SomeOrg/Some-Model.1B", "--prompt", "hello")
    assert (code, out) == (2, "")
    assert err.startswith(
        "error: SomeOrg/Some-Model.1B: no such path, and the hub cannot be asked for a model of this name ("
    )
    assert "hf download SomeOrg/Some-Model.1B --local-dir Some-Model.1B" in err
    Path("SomeOrg").mkdir()  # then it is a path
    for path in ("SomeOrg/Some-Model.1B", "/Org/Model", "./Org", "../Org", "runs/mine/sft", "Model"):
        assert "  fix: give a checkpoint folder" in run("chat", path, "--prompt", "hello")[2]


def test_force_replaces_a_model_but_nothing_else(run: Ingot) -> None:
    assert run("export", "theirs", "out")[0] == 0
    assert run("import", "theirs", "out", "--force")[0] == 0
    assert Path("out/state").is_dir()
    Path("notes").mkdir()
    Path("notes/todo.txt").write_text("buy milk")
    code, _, err = run("import", "theirs", "notes", "--force")
    assert code == 2
    assert err.startswith("error: notes: this exists and is not the folder of a model")
    assert Path("notes/todo.txt").exists()


@pytest.mark.parametrize(("text", "size"), [("5GB", 5 * 10**9), ("1.5 mb", 1_500_000), ("12K", 12_000), ("7", 7)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-3MB", "0", "five", "3PB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ArtifactError, match="is not a size"):
        parse_size(text)
