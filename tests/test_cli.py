"""The command line, with toy stages put into the table: what it prints, and how it ends."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import ingot
from ingot.checkpoints.state_files import save_state
from ingot.cli import main
from ingot.cli.stop import resume_command
from ingot.recipe.stages import STAGES
from tests.checkpoints.test_full_disk import files_of_at_most
from tests.making.processes import wait_until
from tests.slow import first_fast

TOYS = Path(__file__).parent / "recipe"
RECIPE = """
name: small
stages:
  make: {text: a}
  train: {steps: 4}
  score: {after: each}
  judge: {claims: [better]}
"""
DRIVER = """
import sys
import toy
from ingot.recipe.stages import STAGES
STAGES.update(toy.TABLE)
from ingot.cli import main
sys.argv[0] = "ingot"
main()
"""
Ingot = Callable[..., tuple[int, str, str]]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy stages, in the real table; a recipe of them in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.syspath_prepend(TOYS)
    module = importlib.import_module("toy")
    module.CALLS.clear()
    for kind, entry in module.TABLE.items():
        monkeypatch.setitem(STAGES, kind, entry)
    Path("recipe.yaml").write_text(RECIPE)
    return module


@pytest.fixture
def run(toy: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ingot:
    """`ingot ARGUMENTS`: exit code, output, errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ingot", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def test_run_ends_with_a_table_the_report_and_what_to_do_next(run: Ingot, toy: ModuleType) -> None:
    code, out, err = run("run", "recipe.yaml")
    assert (code, err) == (0, "")
    assert toy.CALLS == ["make@0", "train@0", "score-train", "verdict"]
    table = [line.split() for line in out.split("\n") if " done " in line]
    assert [row[:2] for row in table[-4:]] == [
        ["make", "done"],
        ["train", "done"],
        ["score-train", "done"],
        ["judge", "done"],
    ]
    report = re.search(r"^report: (\S+)$", out, re.MULTILINE)
    assert report is not None
    assert Path(report[1]).read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    chat = re.search(r"^  ingot chat (\S+)$", out, re.MULTILINE)
    assert chat is not None
    assert (Path(chat[1]) / "checkpoint").exists()
    assert "  ingot report runs/small --open" in out
    code, out, _ = run("run", "recipe.yaml", "--set", "judge.claims=[a, b]")
    assert (code, toy.CALLS[4:]) == (0, ["verdict"])
    assert "runs/small also holds 1 folder (" in out


def test_run_json(run: Ingot) -> None:
    code, out, _ = run("run", "recipe.yaml", "--to", "train", "--json")
    result = json.loads(out)
    assert code == 0
    assert [stage["status"] for stage in result["stages"]] == ["done", "done", "pending", "pending"]
    assert result["stages"][1]["bytes"] > 0
    assert result["checkpoint"].startswith("runs/small/train-")
    assert Path(result["report"]).exists()


def test_dry_run(run: Ingot, toy: ModuleType) -> None:
    code, out, _ = run("run", "recipe.yaml", "--dry-run")
    assert (code, out.count("to run"), toy.CALLS, Path("runs").exists()) == (0, 4, [], False)
    _, out, _ = run("run", "recipe.yaml", "--dry-run", "--to", "train")
    statuses = {words[0]: " ".join(words[1:]) for words in map(str.split, out.strip().split("\n"))}
    expected = {"make": "to run", "train": "to run", "score-train": "pending", "judge": "pending"}
    assert {name: statuses[name] for name in expected} == expected


def test_errors_are_messages_with_exit_code_2(run: Ingot) -> None:
    code, out, err = run("run", "recipe.yaml", "--set", "train.stpes=3")
    assert (code, out) == (2, "")
    assert err == "error: --set train.stpes=3: unknown key train.stpes\n  fix: did you mean steps?\n"
    code, _, err = run("run", "recipe.yaml", "--set", "train.fail_at=2")
    assert code == 2
    assert err.startswith("error: runs/small/train-")
    assert err.endswith(": the toy failed as told\nto look at the run so far: ingot report runs/small\n")
    assert "Traceback" not in err
    assert run("report", "nowhere", "--runs", "other")[::2] == (
        2,
        "error: there is no run nowhere\n  fix: give a run folder, such as other/NAME\n",
    )


def test_a_path_that_the_file_system_refuses_is_a_message(run: Ingot, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("a file where a folder is needed")
    fix = "  fix: a part of this path is a file where a folder is needed: give another path\n"
    assert run("run", "recipe.yaml", "--runs", "taken") == (2, "", f"error: taken/small: Not a directory\n{fix}")

    def forbid(path: object, *_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("ingot.workspace.lock.os.open", forbid)  # root, who runs many tests, may write everywhere
    code, _, err = run("run", "recipe.yaml")
    assert (code, err.split("\n")[0]) == (2, "error: runs/small/.lock: Permission denied")


def test_commands_to_copy_survive_spaces_in_paths(run: Ingot) -> None:
    _, out, _ = run("run", "recipe.yaml", "--runs", "my rüns")
    assert "  ingot report 'my rüns/small' --open\n" in out
    assert "  ingot chat 'my rüns/small/train-" in out


def test_help_names_values_and_lists_stages_in_their_order(run: Ingot) -> None:
    _, out, _ = run("--help")
    commands = [words[1] for words in map(str.split, out.split("\n")) if words[:1] == ["│"]]
    kinds = [kind for kind in STAGES if kind in commands]
    assert [command for command in commands if command in STAGES] == kinds
    assert kinds[:4] == ["curate", "synthesize", "tokenizer", "tokenize"]
    _, out, _ = run("plan", "--help")
    assert "RECIPE" in out.split("\n")[1]
    assert "<bool>" not in out  # a flag takes no value
    assert "h800 or b200; h100 if only --gpus is given" in out


def test_a_run_that_is_not_there_names_those_that_are(run: Ingot) -> None:
    run("run", "recipe.yaml", "--to", "make")
    assert run("report", "smal")[2] == "error: there is no run smal\n  fix: did you mean small?\n"
    assert run("report", "zzz")[2] == "error: there is no run zzz\n  fix: runs in runs: small\n"


def test_curves_for_tensorboard_say_where_they_are(run: Ingot) -> None:
    run("run", "recipe.yaml")
    code, out, _ = run("report", "small", "--tensorboard", "my curves")
    assert code == 0
    assert out.endswith("report.html\ncurves: my curves\nnext:\n  tensorboard --logdir 'my curves'\n")
    assert json.loads(run("report", "small", "--tensorboard", "tb", "--json")[1])["tensorboard"] == "tb"
    assert list(Path("tb").rglob("events.*"))


def test_a_full_disk_is_a_message(run: Ingot, toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def write(path: Path, values: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(toy, "write_json", write)

    fail(errno.ENOSPC)
    code, _, err = run("run", "recipe.yaml")
    assert code == 2
    assert err.startswith(
        "error: runs/small: the disk is full: [Errno 28] No space left on device\n  fix: free some space"
    )
    fail(errno.ESTALE)
    monkeypatch.setattr(sys, "argv", ["ingot", "run", "recipe.yaml"])
    with pytest.raises(OSError, match="Stale file handle"):  # not explained: a watchdog tries again
        main()


def test_a_disk_that_fills_while_torch_writes_is_a_message(
    run: Ingot, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, values: object) -> None:
        with files_of_at_most(300_000):
            save_state({"weights": torch.zeros(500_000)}, path)

    monkeypatch.setattr(toy, "write_json", write)
    code, _, err = run("run", "recipe.yaml")
    assert code == 2
    assert re.match(
        r"error: runs/small: the disk is full: \[Errno 27\] File too large: '.*\n  fix: free some space", err
    )
    assert "Traceback" not in err


def test_numpys_words_for_a_full_disk_are_understood(
    run: Ingot, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises an OSError without a number when an array does not fit into a file."""

    def write(path: Path, values: object) -> None:
        with files_of_at_most(300_000):
            np.save(path, np.zeros(500_000))

    monkeypatch.setattr(toy, "write_json", write)
    code, _, err = run("run", "recipe.yaml")
    assert (code, err.partition(" requested")[0]) == (2, "error: runs/small: the disk is full: 500000")


def test_plan(run: Ingot) -> None:
    code, out, _ = run("plan", "recipe.yaml")
    assert code == 0
    assert re.search(r"^score-train +train +to do +[0-9a-f]{6}", out, re.MULTILINE)
    assert out.endswith("results: runs/small\n")
    code, out, _ = run("plan", "recipe.yaml", "--json", "--set", "seed=5")
    assert json.loads(out)["seed"] == 5
    assert not Path("runs").exists()


def test_doctor(run: Ingot) -> None:
    code, out, _ = run("doctor", "recipe.yaml", "--json")
    checks = json.loads(out)
    assert code == 0
    assert {"python", "torch", "recipe"} <= {check["name"] for check in checks}
    Path("bad.yaml").write_text("stages: {mkae: }\n")
    code, out, _ = run("doctor", "bad.yaml")
    assert code == 1
    assert re.search(r"^fail  recipe +bad.yaml:1: mkae: there is no stage kind mkae$", out, re.MULTILINE)


def test_doctor_compares_layouts_with_one_process(run: Ingot) -> None:
    code, out, err = run("doctor", "--layouts", "tensor", "--device", "cpu", "--processes", "2", "--json")
    (found,) = json.loads(out)["cases"]
    assert (code, found["case"], found["verdict"], found["processes"]) == (0, "tensor", "equal", 2)
    assert re.search(r"^tensor +equal( +\d\.\de-\d\d){3}$", err, re.MULTILINE)


def test_report(run: Ingot) -> None:
    run("run", "recipe.yaml", "--json")
    code, out, _ = run("report", "small", "--out", "page.html", "--json")
    assert (code, json.loads(out)) == (0, {"report": "page.html"})
    assert Path("page.html").stat().st_size > 1000


def test_one_kind_of_stage(run: Ingot) -> None:
    """A real stage kind, from a plain file."""
    Path("text.yaml").write_text("vocabulary_size: 300\n")
    code, _, err = run("tokenizer", "text.yaml")
    assert code == 2
    assert err.startswith("error: text.yaml:1: tokenizer needs documents, which no earlier stage makes\n")
    Path("given").mkdir()
    code, out, err = run("tokenizer", "text.yaml", "--input", "documents=given", "--dry-run", "--json", "--seed", "3")
    assert (code, err) == (0, "")
    assert [stage["name"] for stage in json.loads(out)["stages"]] == ["tokenizer"]
    for spelt in (("train", "text.yaml", "--dry-run", "--json"), ("--json", "--dry-run", "text.yaml")):
        code, again, err = run("tokenizer", *spelt, "--input", "documents=given", "--seed", "3")
        assert code == 0 and again == out, err
    code, _, err = run("tokenizer", "text.yaml", "--input", "documents")
    assert err == "error: --input documents: an input needs a role and a path\n  fix: write --input ROLE=PATH\n"


def test_every_kind_has_a_command(run: Ingot) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for command in ("run", "plan", "report", "chat", "ui", "doctor", "curate", "pretrain", "sft", "rl", "eval"):
        assert re.search(rf"^\W*{command}\W", out, re.MULTILINE), command
    assert run("--version")[:2] == (0, f"ingot {ingot.__version__}\n")


def test_chat_passes_its_options_on(run: Ingot, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, Any, dict[str, Any]]] = []
    monkeypatch.setattr("ingot.serve.terminal.local_model.load_local_model", lambda path, adapter: path)
    monkeypatch.setattr("ingot.serve.terminal.chat.chat", lambda *given, **options: calls.append((*given, options)))
    assert run("chat", "model", "--prompt", "2+2?", "--no-think", "--temperature", "0.5", "--seed", "7")[0] == 0
    ((path, sampling, options),) = calls
    assert options.pop("tools")["calculator"].answer_here({"expression": "12*34"}) == "408"
    assert (path, options) == (Path("model"), {"prompt": "2+2?", "system": "", "thinking": False, "ask": True})
    assert (sampling.temperature, sampling.seed, sampling.max_new_tokens) == (0.5, 7, 1024)
    assert run("chat", "model", "--tools", "none")[0] == 0 and calls[1][2]["tools"] == {}
    assert run("chat", "model", "--yes")[0] == 0 and calls[2][2]["ask"] is False


@pytest.mark.parametrize("command", ["chat", "ui"])
def test_a_model_or_a_server_and_not_both(run: Ingot, command: str) -> None:
    assert run(command)[2] == (
        "error: neither a checkpoint nor a server\n  fix: give one of them: MODEL, or --server URL\n"
    )
    assert "both a checkpoint and a server" in run(command, "model", "--server", "http://127.0.0.1:1")[2]
    code, _, said = run(command, "--server", "http://127.0.0.1:1")
    assert code == 2 and "no answer: " in said and "ingot serve" in said
    assert "--api-key" in run("ui", "model", "--host", "0.0.0.0")[2]


@pytest.mark.parametrize(
    ("command", "place", "said"),
    [
        ("chat m --model x", "chat", "--model does nothing without --server: MODEL answers in this process"),
        ("chat m --api-key x", "chat", "--api-key does nothing without --server"),
        (
            "chat --server http://h --adapter a",
            "chat",
            "--adapter does nothing with --server: its weights are not here",
        ),
        ("chat m --prompt hi --temperature 0 --seed 3", "chat", "--seed does nothing with --temperature 0"),
        ("chat m --prompt hi --temperature 0 --top-p 1.0", "chat", "--top-p does nothing with --temperature 0"),
        ("chat m --tools none --yes", "chat", "--yes does nothing with --tools none"),
        ("ui m --tools none --tool-seconds 3", "ui", "--tool-seconds does nothing with --tools none"),
        ("ui m --unsafe", "ui", "--unsafe does nothing without the tool python"),
        ("run recipe.yaml --hang-after 60", "run", "--hang-after does nothing without --watch"),
        ("doctor --quick", "doctor", "--quick does nothing without a recipe"),
        ("doctor --set train.steps=1", "doctor", "--set does nothing without a recipe"),
        ("doctor --processes 8", "doctor", "--processes does nothing without --layouts"),
        ("doctor --layouts tensor --quick", "doctor", "--quick does nothing with --layouts"),
        ("sft recipe.yaml --show 1 --json", "sft", "--json does nothing with --show"),
        ("eval m --suite gsm8k --model x", "eval model", "--model does nothing without --endpoint"),
        ("eval m --suite gsm8k --tokenizer t", "eval model", "--tokenizer does nothing without --endpoint"),
        ("eval --endpoint http://h --suite gsm8k --device cpu", "eval model", "--device does nothing with --endpoint"),
        ("eval follow r/s --every 1 --suite gsm8k --stop-after 2", "eval follow", "--stop-after does nothing without"),
        ("env test arithmetic --temperature 1", "env test", "--temperature does nothing without a model"),
        ("env test arithmetic --policy m --model x", "env test", "--model does nothing without a server"),
        ("env test arithmetic --policy http://h --max-tokens 9", "env test", "--max-tokens does nothing with a server"),
        ("model grow a b --set assistant=me", "model grow", "--set does nothing without --template"),
        ("classifier train --out o --positive p --label l", "classifier train", "--label does nothing without"),
    ],
)
def test_an_option_that_another_makes_meaningless_is_refused(run: Ingot, command: str, place: str, said: str) -> None:
    code, out, err = run(*command.split())
    assert (code, out) == (2, "") and err.startswith(f"error: ingot {place}: {said}") and "\n  fix: " in err


def test_options_that_nobody_wrote_are_not_refused(run: Ingot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGOT_API_KEY", "k3y")  # of a server that this chat does not use
    assert run("chat", "nowhere", "--prompt", "hi", "--temperature", "0")[2].startswith("error: nowhere: no checkpoint")


def test_a_price_needs_a_gpu(run: Ingot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.planner.plan.this_gpu", lambda: None)
    assert run("plan", "recipe.yaml", "--price", "2")[2] == (
        "error: --price: a price of GPU-hours, and there is no GPU here\n  fix: name one: --gpu h100\n"
    )
    assert run("plan", "recipe.yaml", "--price", "2", "--gpu", "h100")[0] == 0


def test_resume_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["/usr/bin/ingot", "run", "a b.yaml", "--from", "sft", "--set", "x=1", "--from=sft"]
    )
    assert resume_command() == "ingot run 'a b.yaml' --set x=1"


def start_run(driver: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(TOYS), str(Path(ingot.__file__).parents[1])])
    command = [sys.executable, "-c", driver, "run", "recipe.yaml", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )


def wait_for_training(process: subprocess.Popen[str]) -> None:
    wait_until(lambda: process.poll() is not None or list(Path("runs").glob("small/train-*/metrics.jsonl")))
    assert process.poll() is None


@pytest.mark.parametrize(("number", "code"), first_fast([(signal.SIGTERM, 0), (signal.SIGINT, 130)]))
def test_a_stopped_run_says_how_to_go_on(toy: ModuleType, number: signal.Signals, code: int) -> None:
    Path("recipe.yaml").write_text(RECIPE.replace("steps: 4", "steps: 60, pause: 0.02"))
    process = start_run(DRIVER)
    wait_for_training(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "[make] done in" in out  # plain lines, as this is no terminal
    lines = err.strip().split("\n")
    again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
    assert lines[0] == f"stopping at the next step{again}"
    assert re.fullmatch(r"stopped in stage train; its work is saved in runs/small/train-\w+", lines[1])
    assert lines[2:] == ["to resume: ingot run recipe.yaml"]
    process = start_run(DRIVER, "--json")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [stage["status"] for stage in json.loads(out)["stages"]] == ["reused", "done", "done", "done"]


def test_a_late_second_signal_leaves_no_traceback(toy: ModuleType) -> None:
    """The second Ctrl-C comes while the interpreter ends."""
    Path("recipe.yaml").write_text(RECIPE.replace("steps: 4", "steps: 400, pause: 0.02"))
    late = (
        "import atexit, os, signal\natexit.register(lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])\n"
    )
    process = start_run(late + DRIVER)
    wait_for_training(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.count("to resume: "), "Traceback" in err) == (130, 1, False)


@pytest.mark.parametrize(
    "output", first_fast(["closed by its reader", "on a full disk", "closed from the start"]), ids=str
)
def test_a_run_goes_on_when_its_output_cannot_be_written(toy: ModuleType, output: str) -> None:
    """`ingot run | head -1`: the reader is gone while the run begins, which finishes and says so."""
    command = [sys.executable, "-c", DRIVER, "run", "recipe.yaml"]
    if output == "closed from the start":
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    reader, writer = os.pipe() if output == "closed by its reader" else (None, os.open("/dev/full", os.O_WRONLY))
    if reader is not None:
        os.close(reader)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TOYS), str(TOYS.parents[1])])}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
    os.close(writer)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the run goes on without it") == (0 if output == "closed from the start" else 1)
    assert len(done.stderr.splitlines()) <= 1
    assert len(list(Path("runs/small").glob("*/DONE"))) == 4


def test_a_command_whose_output_is_on_a_full_disk_names_the_output(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not the disk of the runs, which has room."""
    monkeypatch.setattr(sys, "argv", ["ingot", "plan", "recipe.yaml"])
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: standard output: it cannot be written: No space left on device\n"
        "  fix: free some space where it goes, or send it elsewhere\n"
    )


def test_the_same_from_python(toy: ModuleType) -> None:
    planned = ingot.plan("recipe.yaml", set={"train.steps": 2})
    result = ingot.run("recipe.yaml", set={"train.steps": 2}, report=False)
    assert [stage.hash for stage in planned.stages] == [stage.folder.name.split("-")[-1] for stage in result.stages]
    assert result.stages[1].summary["steps"] == 2
    assert result.report is None
    assert [stage.status for stage in ingot.run("recipe.yaml", set={"train.steps": 2}, dry_run=True).stages] == [
        "reused"
    ] * 4
