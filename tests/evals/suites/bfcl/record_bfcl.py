"""Records what the leaderboard's own checker says about the answers of cases.py, in published_bfcl.json.

    python -m tests.evals.suites.bfcl.record_bfcl BFCL DATA

BFCL is the folder into which the wheel of bfcl-eval 2026.3.23 is unpacked (only its code is needed), DATA the folder of data
sets. Its module of model clients and its parsers of other languages are left out. A verdict is 1 or 0, and E where the checker
raises.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from tests.evals.suites.bfcl.cases import cases, digest, read

FILE = Path(__file__).parent / "published_bfcl.json"
STUBBED = (
    "bfcl_eval.constants.model_config",
    "bfcl_eval.model_handler.parser.java_parser",
    "bfcl_eval.model_handler.parser.js_parser",
    "tenacity",
    "dotenv",
    "tqdm",
)


def main(folder: Path, data: Path) -> None:
    """Run the checker and write the file."""
    sys.path.insert(0, str(folder))
    for name in STUBBED:
        sys.modules[name] = MagicMock(__all__=[])
    plain = types.SimpleNamespace(underscore_to_dot=False)
    sys.modules["bfcl_eval.constants.model_config"].MODEL_CONFIG_MAPPING = {"plain": plain}  # type: ignore[attr-defined]
    utils = importlib.import_module("bfcl_eval.model_handler.utils")
    tried = list(cases(data))
    verdicts = "".join(verdict(utils, *case) for case in tried)
    row = read(data, "multiple")[0]
    helpers = importlib.import_module("bfcl_eval.utils")
    functions = helpers._func_doc_language_specific_pre_processing(row["function"], "multiple")
    (messages,) = row["question"]
    system = utils.system_prompt_pre_processing_chat_model(messages, functions, row["id"])[0]["content"]
    record = {"cases": digest(tried), "system": hashlib.sha256(system.encode()).hexdigest(), "verdicts": verdicts}
    FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def verdict(utils: Any, category: str, row: dict[str, Any], key: list[Any], text: str) -> str:
    """What the leaderboard says about one answer."""
    helpers = importlib.import_module("bfcl_eval.utils")
    language = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON
    try:
        decoded = utils.default_decode_ast_prompting(text)
    except Exception:  # noqa: BLE001 - as the leaderboard does: whatever cannot be decoded is no call
        return str(int(category == "irrelevance"))
    if category == "irrelevance":
        return str(int(helpers.is_empty_output(decoded)))
    if not helpers.is_function_calling_format_output(decoded):
        return "0"
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    try:
        found = checker.ast_checker(row["function"], decoded, key, language, category, "plain")
    except Exception:  # noqa: BLE001 - a peer's code, of which only the verdict is wanted
        return "E"
    return str(int(found["valid"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
