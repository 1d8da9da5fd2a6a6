"""Records what the leaderboard's own evaluation says about the conversations of trajectories.py, in published_multi_turn.json.

    python -m tests.evals.suites.bfcl.record_multi_turn BFCL DATA

BFCL is the folder into which the wheel of bfcl-eval 2026.3.23 is unpacked (only its code is needed), DATA the folder of data
sets. Clients of models and parsers of other languages are left out. A verdict is 1 or 0, and E where the checker raises.

Results of calls are recorded by their hash. The leaderboard evaluates calls as Python, for which it writes the name of an object
before each function's name, in texts too; that name is taken out of the results. Its services are loaded anew for each
conversation, because one can leave traces in the next (apis.py).
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from ingot.evals.suites.bfcl.apis import PACKAGE
from tests.evals.suites.bfcl.record_bfcl import STUBBED
from tests.evals.suites.bfcl.trajectories import (
    NATIVE,
    Case,
    conversations,
    digest,
    digest_results,
    functions,
    questions,
)

FILE = Path(__file__).parent / "published_multi_turn.json"
MORE_STUBBED = (
    "bfcl_eval.eval_checker.eval_runner_helper",
    "bfcl_eval.eval_checker.agentic_eval.agentic_checker",
    "overrides",
)
OBJECT = re.compile(r"\w+_instance\.")


def main(folder: Path, data: Path) -> None:
    """Run the evaluation and write the file."""
    sys.path.insert(0, str(folder))
    for name in (*STUBBED, *MORE_STUBBED):
        sys.modules[name] = MagicMock(__all__=[], final=lambda function: function)
    tried = list(conversations(data))
    reference = "".join(
        verdict(f"reference{number}", (row, calls, [[json.dumps(turn)] for turn in calls]), json.loads)
        for number, (row, calls) in enumerate(questions(data))
    )
    utils = importlib.import_module("bfcl_eval.model_handler.utils")
    decode = utils.default_decode_execute_prompting
    record = {
        "conversations": digest(tried),
        "system": system(utils, data),
        "native": utils.convert_to_function_call([{name: json.dumps(arguments)} for name, arguments in NATIVE]),
        "reference": reference,
        "verdicts": "".join(verdict(f"model{number}", case, decode) for number, case in enumerate(tried)),
        "results": " ".join(digest_results(results(f"again{number}", *case)) for number, case in enumerate(tried)),
    }
    FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def forget() -> None:
    """Have the services loaded anew."""
    for name in [each for each in sys.modules if each.startswith(PACKAGE)]:
        del sys.modules[name]


def verdict(model: str, case: Case, decode: Any) -> str:
    """What the leaderboard says about one conversation. Its objects live as long as the process, by the model's name."""
    forget()
    row, calls, written = case
    runner = importlib.import_module("bfcl_eval.eval_checker.eval_runner")
    handler = MagicMock(decode_execute=lambda text, has_tool_call_tag: decode(text))
    entry, category = copy.deepcopy(row), row["id"].rsplit("_", 1)[0]
    try:
        found = runner._evaluate_single_multi_turn_entry(handler, row["id"], written, calls, entry, model, category)
    except Exception:  # noqa: BLE001 - a peer's code, of which only the verdict is wanted
        return "E"
    return str(int(found["valid"]))


def results(model: str, row: dict[str, Any], calls: list[list[str]], written: list[list[str]]) -> list[str]:
    """The results of all calls of a conversation."""
    forget()
    decode = importlib.import_module("bfcl_eval.model_handler.utils").default_decode_execute_prompting
    execute = importlib.import_module(
        "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"
    ).execute_multi_turn_func_call
    found: list[str] = []
    for text in (text for turn in written for text in turn):
        try:
            decoded = decode(text)
        except Exception:  # noqa: BLE001 - as the leaderboard does: whatever cannot be decoded is no call
            continue
        longer = "long_context" in row["id"]
        told, _ = execute(decoded, row["initial_config"], row["involved_classes"], model, row["id"], longer)
        found += [OBJECT.sub("", each) for each in told]
    return found


def system(utils: Any, data: Path) -> str:
    """The hash of the system prompt of the first question."""
    row, _ = questions(data)[0]
    described = functions(data)
    offered = [each for service in row["involved_classes"] for each in described[service]]
    helpers = importlib.import_module("bfcl_eval.utils")
    offered = helpers._func_doc_language_specific_pre_processing(offered, "multi_turn_base")
    prompt = utils.system_prompt_pre_processing_chat_model(row["question"][0], offered, row["id"])[0]["content"]
    return hashlib.sha256(prompt.encode()).hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
