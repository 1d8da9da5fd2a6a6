"""The curves of a run as TensorBoard event files, for those who compare many runs there (extra: `track`).

Metrics live in metrics.jsonl while a stage trains; this writes the same numbers once more, one TensorBoard run per stage.
"""

from __future__ import annotations

from pathlib import Path

from ingot.report.read import read_run
from ingot.workspace.errors import IngotError
from ingot.workspace.packages import install_extra


def export_tensorboard(run_folder: Path, out: Path) -> Path:
    """Write every stage's metrics below `out`, a folder per stage; returns `out`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise IngotError("TensorBoard is not installed", fix=install_extra("track")) from error
    for stage in read_run(run_folder).stages:
        if not stage.metrics:
            continue
        with SummaryWriter(str(out / stage.name)) as writer:
            for row in stage.metrics:
                for name, value in row.items():
                    if name != "step" and isinstance(value, int | float):
                        writer.add_scalar(name, value, int(row["step"]))
    return out
