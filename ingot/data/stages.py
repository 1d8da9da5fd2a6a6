"""Declares the stage of this room: `curate`."""

from __future__ import annotations

from ingot.workspace.command import CommandOption
from ingot.workspace.stage import Stage, imported


class CurateStage(Stage):
    """Read raw text, remove bad documents and copies."""

    config = imported("ingot.data.config:CurateConfig")
    run = imported("ingot.data.curate:run")
    dry_run = imported("ingot.data.plan:make_plan")
    dry_run_help = "Print sources, columns, time and disk; write nothing."
    command_options = (
        CommandOption("workers", "N", "Number of processes; default: one per core.", int, minimum=1),
        CommandOption("engine", "NAME", "Where to run: local or ray; default: the file's."),
    )
    makes = ("documents",)
    leaves = ("documents/funnel.json", "documents/removed.jsonl")
    version = 2
