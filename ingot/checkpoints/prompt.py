"""Another prompt for a model on disk: a chat template, or a plain text for a base model that has none (tokens/template_files.py).

A template that has the option `end` gets the model's own end of a text for it, so that one prompt serves every model.
"""

from __future__ import annotations

import dataclasses
import re

from ingot.checkpoints.stored_model import StoredModel
from ingot.tokens.add_tokens import with_template
from ingot.tokens.template_files import template_options, template_text, with_options
from ingot.workspace.errors import ArtifactError

JINJA = re.compile(r"\{\{|\{%")


def with_prompt(stored: StoredModel, template: str) -> StoredModel:
    """The model with a template: its name, a Jinja file, or Jinja itself."""
    tokenizer = stored.tokenizer()
    if tokenizer is None:
        raise ArtifactError("the checkpoint has no tokenizer", fix="import the model with its tokenizer")
    text = template if JINJA.search(template) else template_text(template)
    if "end" in template_options(text):
        text = with_options(text, {"end": tokenizer.piece(tokenizer.end_of_text)})
    return dataclasses.replace(stored, files=with_template(tokenizer, text).to_files())
