"""`python -m ingot.cli.lab_worker JOB.json`: the process that `ingot ablate` starts for each run."""

from __future__ import annotations

import sys
from pathlib import Path


def main(job: Path) -> int:
    """Do the job that the file names."""
    from ingot.lab.worker import work
    from ingot.planner.expected import expected_speed
    from ingot.report.build import build
    from ingot.workspace.files import read_json

    return work(read_json(job), finish=build, expected=expected_speed)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
