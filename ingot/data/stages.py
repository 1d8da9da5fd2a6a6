"""Declares the stage of this room: `curate`."""

from __future__ import annotations

from ingot.workspace.stage import Stage, imported


class CurateStage(Stage):
    """Read raw text, remove bad documents and copies."""

    config = imported("ingot.data.config:CurateConfig")
    run = imported("ingot.data.curate:run")
    makes = ("documents",)
    leaves = ("documents/funnel.json", "documents/removed.jsonl")
    version = 2
