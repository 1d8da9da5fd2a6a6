"""Writes the Modelfile with which Ollama makes a model of a GGUF file: where the weights are, when it stops, how it samples.

    FROM ./model.gguf
    PARAMETER num_ctx 4096
    PARAMETER stop "<|im_end|>"

Ollama renders conversations by templates in the syntax of Go and knows many layouts by the Jinja template in the GGUF file; it
does not run Jinja. A TEMPLATE line is left to the user: what it renders could not be compared here with Ollama's own.
"""

from __future__ import annotations

import json

from ingot.checkpoints.gguf.vocabulary import all_ends
from ingot.checkpoints.stored_model import StoredModel
from ingot.tokens.tokenizer import GENERATION_CONFIG
from ingot.workspace.errors import ArtifactError

MODELFILE, WEIGHTS = "Modelfile", "model.gguf"
SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "repetition_penalty": "repeat_penalty"}
"""Keys of generation_config.json: Ollama's parameter."""
TEMPLATE_NOTE = (
    "Ollama does not run Jinja: if it does not know this chat template, `ollama show --template` prints {{ .Prompt }}; "
    "then add a TEMPLATE to the Modelfile"
)


def modelfile(stored: StoredModel) -> str:
    """The text of the file, for a model with a tokenizer."""
    tokenizer = stored.tokenizer()
    if tokenizer is None:
        raise ArtifactError(
            "Ollama cannot run a model without a tokenizer", place=stored.place, fix="export it as a .gguf file"
        )
    lines = [f"FROM ./{WEIGHTS}", f"PARAMETER num_ctx {stored.config.context}"]
    settings = json.loads(stored.files.get(GENERATION_CONFIG, b"{}"))
    lines += [f"PARAMETER {ours} {settings[theirs]}" for theirs, ours in SAMPLING.items() if settings.get(theirs)]
    stops = (tokenizer.piece(id) for id in all_ends(tokenizer))
    lines += [f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops]
    return "\n".join(lines) + "\n"
