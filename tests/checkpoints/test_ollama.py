"""The folder for Ollama: a Modelfile that says what the model's own files say, beside a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.checkpoints.convert import export_ollama
from ingot.checkpoints.gguf.read import open_gguf
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import GENERATION_CONFIG, Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import config, random_model

SETTINGS = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True, "eos_token_id": [0]}


def test_the_folder(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["some text"], TokenizerConfig(vocabulary_size=300, split="cl100k"))
    files = {**tokenizer.to_files(), GENERATION_CONFIG: json.dumps(SETTINGS).encode()}
    model = random_model(config(vocabulary_size=tokenizer.vocabulary_size))
    model.tokenizer = Tokenizer.from_files(files, "test")
    folder = export_ollama(model, tmp_path / "mine", type="f16")
    assert sorted(path.name for path in folder.iterdir()) == ["Modelfile", "model.gguf"]
    assert (folder / "Modelfile").read_text(encoding="utf-8") == (
        f"FROM ./model.gguf\nPARAMETER num_ctx {model.config.context}\n"
        "PARAMETER temperature 0.6\nPARAMETER top_p 0.95\nPARAMETER top_k 20\n"
        'PARAMETER stop "<|im_end|>"\nPARAMETER stop "<|endoftext|>"\n'
    )
    assert open_gguf(folder / "model.gguf").tokenizer() is not None
    with pytest.raises(ArtifactError, match="the folder exists"):
        export_ollama(model, folder)
    export_ollama(model, folder, replace=True)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot run a model without a tokenizer"):
        export_ollama(random_model(config()), tmp_path / "mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(ArtifactError, match="exists and is not the folder of a model"):
        export_ollama(random_model(config()), tmp_path / "other", replace=True)
