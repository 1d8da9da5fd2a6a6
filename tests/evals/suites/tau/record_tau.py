"""Records what tau2-bench's own tools make of the actions of cases.py, in published_tau.json.

    python -m tests.evals.suites.tau.record_tau TAU2 DATA

TAU2 is the folder src of sierra-research/tau2-bench at a2c0247, DATA the folder of data sets.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pydantic

from tests.evals.suites.tau.cases import load, outcome, sequences
from tests.making.rows import write_rows

FILE = Path(__file__).parent / "published_tau.json"
PACKAGES = ("tau2", "tau2.domains", "tau2.domains.retail", "tau2.environment")  # without what their __init__ imports


def main(source: Path, data: Path) -> None:
    """Run the tools and write the file."""
    for name in PACKAGES:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(source / name.replace(".", "/"))]
    for name in ("tau2.utils", "tau2.domains.retail.utils", "tau2.environment.tool"):
        sys.modules[name] = MagicMock()
    sys.modules["tau2.utils.pydantic_utils"] = types.SimpleNamespace(BaseModelNoExtra=pydantic.BaseModel)  # type: ignore[assignment]
    tools = importlib.import_module("tau2.domains.retail.tools").RetailTools
    database = importlib.import_module("tau2.domains.retail.data_model").RetailDB
    rows = load(data, "retail_db")
    before = plain(database.model_validate(rows))
    found = []
    for actions in sequences(data):
        shop = database.model_validate(rows)
        errors = []
        for name, arguments in actions:
            try:
                getattr(tools(shop), name)(**arguments)
                errors.append(False)
            except Exception:  # noqa: BLE001 - a peer's code, of which only the outcome is wanted
                errors.append(True)
        found.append(outcome(errors, before, plain(shop)))
    write_rows(FILE, [found])


def plain(database: Any) -> dict[str, Any]:
    """The tables that change, without what is not set."""
    dumped = database.model_dump(exclude_none=True)
    return {table: dumped[table] for table in ("orders", "users")}


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
