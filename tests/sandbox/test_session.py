"""Sessions: what stays between calls, what a limit does to them, files, and what is left when they close."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.sandbox import memory, session
from ingot.sandbox.notebook import Notebook
from ingot.sandbox.program import Limits
from ingot.sandbox.run import isolation
from ingot.sandbox.session import SessionEnded, SessionOutput
from ingot.sandbox.shell import Shell
from ingot.workspace.errors import IngotError

LIMITS = Limits(20.0, file=10**6, output=10**6, processes=20, memory=3 * 10**8)


@pytest.fixture(autouse=True)
def isolated() -> None:
    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")


def test_a_shell_keeps_folder_variables_functions_and_files() -> None:
    with Shell(LIMITS) as shell:
        assert shell.run("cd /tmp && export A=x b='y z'; greet() { echo hello $1; }") == SessionOutput("", 0)
        assert shell.run("pwd; echo $A $b; greet you; echo wrong >&2; echo text > file; false") == SessionOutput(
            "/tmp\nx y z\nhello you\nwrong\n", 1
        )
        assert shell.run("cat file; cat; echo '!x' \"it's\" `echo $A`") == SessionOutput("text\n!x it's x\n", 0)
        assert shell.run("for (( i=0").status == 2
        assert shell.run("cat <<END\nline $A\nEND\nexit_status() { return 42; }; exit_status") == SessionOutput(
            "line x\n", 42
        )


def test_a_shell_does_what_bash_does() -> None:
    """Against bash itself, which reads the same commands from a file."""
    commands = [
        "x=(1 2 3); echo ${x[@]} ${#x[@]}",
        "set -- a b; shift; echo $1 $#",
        "declare -A m=([k]=v); echo ${m[k]}; (cd /; x=5); echo $x",
        "printf '%s|' \"two words\" one; echo; echo $?",
        "case abc in a*) echo yes;; esac; [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}",
        "echo a > f; echo b >> f; sort -r f; wc -l < f",
    ]
    with Shell(LIMITS) as shell:
        ours = "".join(shell.run(command).output for command in commands)
        theirs = shell.run("bash --norc <<'END'\ncd /tmp\n" + "\n".join(commands) + "\nEND").output
    assert ours == theirs


def test_a_notebook_keeps_names_and_prints_the_last_value() -> None:
    with Notebook(LIMITS) as notebook:
        assert notebook.run("import math\nx = 3\ndef f(y): return x * y") == SessionOutput("", 0)
        assert notebook.run("print('printed'); f(2)") == SessionOutput("printed\n6\n", 0)
        assert notebook.run("x = 4; None") == SessionOutput("", 0)
        assert notebook.run("f(2)\n") == SessionOutput("8\n", 0)
        failed = notebook.run("print('before')\nf('a', 1)")
        assert failed.status == 1 and failed.output.startswith(
            'before\nTraceback (most recent call last):\n  File "<code>"'
        )
        assert "TypeError" in failed.output and "notebook.py" not in failed.output
        assert notebook.run("1 +").output.endswith("SyntaxError: invalid syntax\n")
        assert notebook.run("input()").output.endswith("EOFError: EOF when reading a line\n")
        assert notebook.run("import sys; sys.exit(2)").status == 1  # as a notebook's kernel, it goes on
        assert notebook.run("_ = [print(n) for n in range(2)]").output == "0\n1\n"


CASES: list[tuple[type[Shell] | type[Notebook], str, str]] = [
    (Shell, "echo begun; sleep 60", "echo again"),
    (Shell, "echo begun; while true; do :; done", "echo again"),
    (Shell, "echo begun; python3 -c 'while True: pass' 2>/dev/null || while true; do :; done", "echo again"),
    (Notebook, "print('begun', flush=True)\nwhile True: pass", "print('again')"),
    (Notebook, "print('begun', flush=True)\nimport time; time.sleep(60)", "print('again')"),
]


@pytest.mark.parametrize(("kind", "slow", "next_call"), CASES)
def test_a_call_over_its_deadline_is_interrupted(kind: type[Shell] | type[Notebook], slow: str, next_call: str) -> None:
    with kind(LIMITS) as opened:
        answer = opened.run(slow, 0.5)
        assert answer.stopped == "time" and answer.output.startswith("begun\n") and answer.status != 0
        assert opened.run(next_call) == SessionOutput("again\n", 0)


@pytest.mark.parametrize(
    ("kind", "stubborn"),
    [
        (Shell, "trap '' INT; sleep 60"),
        (Notebook, "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"),
    ],
)
def test_a_call_that_does_not_end_ends_the_session(
    kind: type[Shell] | type[Notebook], stubborn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "GRACE_SECONDS", 0.3)
    with kind(LIMITS) as opened:
        number = opened._worker.process.pid
        assert opened.run(stubborn, 0.3).stopped == "time"
        assert not Path(f"/proc/{number}").exists()
        with pytest.raises(SessionEnded, match="did not end when it was interrupted"):
            opened.run("1")


def test_too_much_output() -> None:
    with Shell(LIMITS) as shell:
        answer = shell.run("yes")
        assert answer.stopped == "output" and len(answer.output) == LIMITS.output
        assert shell.run("echo fine") == SessionOutput("fine\n", 0)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: Shell(LIMITS), "exit 3"),
        (lambda: Shell(LIMITS), "kill -9 $$"),
        (lambda: Notebook(LIMITS), "import os; os._exit(3)"),
        (lambda: Notebook(LIMITS), "import os\nos.kill(os.getpid(), 11)"),
    ],
)
def test_a_session_whose_process_ends_says_so(call: Callable[[], Shell | Notebook], why: str) -> None:
    with call() as opened:
        assert opened.run(why).status == -1
        with pytest.raises(SessionEnded, match="its process ended"):
            opened.run("1")


def test_a_session_that_takes_too_much_memory_ends() -> None:
    with Shell(LIMITS) as shell:
        hog = "python3 -c 'import time; x = b\"x\" * 90_000_000; time.sleep(60)'"
        assert shell.run(f"for i in 1 2 3 4 5; do {hog} & done; sleep 60", 30.0).stopped == "memory"
        with pytest.raises(SessionEnded, match="memory"):
            shell.run("1")


@pytest.mark.parametrize("kind", [Shell, Notebook])
def test_files_go_in_and_out(kind: type[Shell] | type[Notebook]) -> None:
    data = bytes(range(256)) * 1000
    with kind(LIMITS) as opened:
        opened.write("a folder/it's.bin", data)
        assert opened.read("a folder/it's.bin") == data
        opened.write("/tmp/empty", b"")
        assert opened.read("/tmp/empty") == b""
        for path in ("missing", "/etc/shadow", __file__, "/usr"):
            with pytest.raises(IngotError, match=r"No such file|Is a directory"):
                opened.read(path)
        with pytest.raises(IngotError, match=r"Read-only file system|Permission denied"):
            opened.write("/usr/mine", b"x")
        with pytest.raises(IngotError, match="larger than"):
            opened.write("large", bytes(LIMITS.file + 1))


def test_links_lead_nowhere_and_large_files_do_not_come_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with Shell(Limits(20.0, file=1000)) as shell:
        shell.run(f"ln -s {tmp_path}/secret link; ln -s / root")
        for path in ("link", f"root{tmp_path}/secret", "/proc/1/root/etc/passwd"):
            with pytest.raises(IngotError, match=r"No such file|Permission denied"):
                shell.read(path)
        assert shell.read("root/dev/null") == b""
        assert "File too large" in shell.run("head -c 2000 /dev/zero > large").output
        assert shell.read("large") == bytes(1000)
        shell.run("mkfifo pipe; (cat large large > pipe) &")
        with pytest.raises(IngotError, match="larger than 1,000 bytes"):
            shell.read("pipe")


def test_a_fifo_that_nobody_writes_meets_the_deadline() -> None:
    with Shell(Limits(0.5)) as shell:
        shell.run("mkfifo pipe")
        with pytest.raises(IngotError):
            shell.read("pipe")
        assert shell.run("echo fine") == SessionOutput("fine\n", 0)


def test_closing_leaves_nothing() -> None:
    with Shell(LIMITS) as shell:
        shell.run("(setsid sleep 1000 &) ; sleep 1000 & echo")
        numbers = memory.descendants(shell._worker.process.pid)
        assert len(numbers) >= 5
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)
    with pytest.raises(SessionEnded, match="it was closed"):
        shell.run("echo")
    shell.close()  # twice is fine


def test_code_in_a_notebook_that_writes_where_answers_go() -> None:
    forge = (
        "import os\nfor number in range(3, 20):\n    try: os.write(number, b'\\0\\0\\0\\2xx')\n    except OSError: pass"
    )
    with Notebook(Limits(5.0)) as notebook:
        began = time.monotonic()
        notebook.run(forge, 1.0)
        assert time.monotonic() - began < 5
        with pytest.raises(SessionEnded, match="nonsense"):
            notebook.run("1")


def test_the_neighbouring_session_is_another_world() -> None:
    with Shell(LIMITS) as one, Shell(LIMITS) as other:
        one.run("echo x > /tmp/file; sleep 77 &")
        assert other.run("ls /tmp/file 2>/dev/null; ps ax 2>/dev/null | grep -c 'sleep 7[7]' || true").output in (
            "0\n",
            "",
        )
    assert "sleep 77" not in subprocess.run(["ps", "ax"], capture_output=True, text=True, timeout=20).stdout
