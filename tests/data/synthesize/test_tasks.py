"""Prompts, and the checks that answers must pass."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from ingot.data.synthesize.checks import copied
from ingot.data.synthesize.sample import Refused, SourcePassage, WriterRequest
from ingot.data.synthesize.sections import Frequencies
from ingot.data.synthesize.tasks.count import CountTask
from ingot.data.synthesize.tasks.notes import NotesTask
from ingot.data.synthesize.tasks.problems import ProblemsTask, run_program
from ingot.data.synthesize.tasks.rephrase import RephraseTask
from ingot.data.synthesize.tasks.translate import TranslateTask
from ingot.data.synthesize.tasks.vignettes import VignettesTask
from ingot.sandbox.run import isolation

TEXT = (
    "In 1687 Newton published the laws of motion, and a stone that falls for 3 seconds was known to drop about 44.1 metres "
    "before it meets the ground below the tower, whatever its weight may be and whoever lets it go."
)
PASSAGE = SourcePassage("book", 0, len(TEXT), TEXT)


def refusal(check: object, *arguments: object) -> str:
    assert callable(check)
    with pytest.raises(Refused) as caught:
        check(*arguments)
    return str(caught.value)


def test_two_rephrasings_have_two_styles_and_three_are_refused() -> None:
    task = RephraseTask(per_passage=2)
    first, second = task.ask(PASSAGE, 0)
    assert first.prompt != second.prompt and TEXT in first.prompt and (first.variant, second.variant) == (0, 1)
    assert {first.facts["style"], second.facts["style"]} == {"encyclopedia", "dialogue"}
    [turned] = RephraseTask().ask(PASSAGE, 1)
    assert turned.facts["style"] == "dialogue", "the next passage gets the next style"
    with pytest.raises(ValidationError, match="less than or equal to 2"):
        RephraseTask(per_passage=3)
    with pytest.raises(ValidationError, match="different styles"):
        RephraseTask(per_passage=2, styles=["plain"])


def test_rephrasings_are_checked() -> None:
    task = RephraseTask()
    [request] = task.ask(PASSAGE, 0)
    good = (
        "Newton's laws of motion came out in 1687. By then people could work out that any stone dropped from a tower falls "
        "some 44,1 metres during the first 3 seconds; its weight does not matter."
    )
    assert task.check(request, f"Sure, here is the new text:\n\n{good}") == good
    assert refusal(task.check, request, "  ") == "empty"
    assert refusal(task.check, request, "I'm sorry, I cannot do this.") == "declined"
    assert refusal(task.check, request, "Newton, 1687, 3, 44.1.") == "too short"
    assert refusal(task.check, request, good + " And so on." * 60) == "too long"
    assert refusal(task.check, request, good.replace("1687", "old times")) == "numbers lost"
    assert refusal(task.check, request, TEXT) == "copied"
    assert copied("a b c d e f g h i j", "x a b c d e f g h i") == pytest.approx(2 / 3)


def test_notes_and_translations_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    [request] = NotesTask().ask(PASSAGE, 0)
    steps = "Given: a fall of 3 s. Sought: the depth. Idea (1687): s = g t² / 2. "
    steps += "Step: 9.8 · 9 / 2 = 44.1 metres. Weight plays no part."
    assert NotesTask().check(request, steps) == steps
    task = TranslateTask(language="German", code="de")
    [request] = task.ask(PASSAGE, 0)
    german = (
        "1687 veröffentlichte Newton die Gesetze der Bewegung, und man wusste, dass ein Stein in 3 Sekunden etwa 44,1 Meter "
        "tief fällt, wie schwer er auch ist."
    )
    assert "German" in request.prompt
    for code in ("de", "nl"):
        monkeypatch.setattr(TranslateTask, "language_of", lambda self, text, code=code: code)
        if code == "de":
            assert task.check(request, german) == german
        else:
            assert refusal(task.check, request, german) == "another language"


def long_text() -> str:
    """Eighty sentences in which every word's count is known by construction."""
    lines = []
    for number in range(80):
        line = f"Sentence {number} speaks of ordinary matters"
        line += " and of whales" * (number % 4 == 0) + " and of harpoons" * (number % 10 == 0)
        line += " near Nantucket" * (number % 16 == 0) + f" with oddity{'abcdefgh'[number % 8]}"
        lines.append(line + ".")
    return " ".join(lines)


def test_counting_questions_have_the_right_answers() -> None:
    text = long_text()
    section = SourcePassage("moby", 0, len(text), text)
    frequencies = Frequencies()
    frequencies.add([text, "another text about other matters", "and a third one"])
    task = CountTask(words=3, min_count=5, max_count=25)
    [request] = task.ask(section, frequencies)
    for word, number in request.facts["counts"].items():
        plain = [each.strip(".,").lower() for each in text.split()]  # another way of counting than the code's
        assert plain.count(word) == number
    assert request.facts["counts"]["whales"] == 20, "as it was built"
    assert request.facts["most"] == "whales"
    one, two = request.facts["pair"]
    together = request.facts["counts"][one] + request.facts["counts"][two]
    document = task.check(request, "")
    assert document.startswith(text) and f"{one} and {two} together: {together}" in document
    wrong = WriterRequest("count", section, request.prompt, facts={**request.facts, "counts": {"whales": 19}})
    assert refusal(task.check, wrong, "") == "counts disagree"
    assert CountTask(words=50).ask(section, frequencies) == [], "too few words: no question"


def test_vignettes_take_up_the_sentences() -> None:
    text = long_text()
    section = SourcePassage("moby", 0, len(text), text)
    frequencies = Frequencies()
    frequencies.add([text, "ordinary matters of a sentence that speaks with and near", "a third"])
    task = VignettesTask(snippets=5, min_snippets_used=4)
    [request] = task.ask(section, frequencies)
    word, snippets = request.facts["word"], request.facts["snippets"]
    assert len(snippets) == 5 and all(word in snippet.lower() for snippet in snippets)
    assert snippets[-1] not in text[: len(text) // 2], "from the whole text"
    scenes = f"A sailor speaks: {word}! " + " ".join(snippets)
    assert task.check(request, scenes).endswith(scenes)
    assert refusal(task.check, request, " ".join(snippets).lower().replace(word, "they")) == "word missing"
    assert refusal(task.check, request, f"Only {word} here.") == "sentences left out"


def answer(program: str, result: str) -> str:
    return f"Problem: How far does a stone fall in 3 s?\nProgram:\n```python\n{program}\n```\nAnswer: {result}"


def test_problems_are_kept_only_if_the_program_agrees() -> None:
    task = ProblemsTask(seconds=1)
    [request] = task.ask(PASSAGE, 0)
    document = task.check(request, answer("print(9.8 * 3**2 / 2)", "44.1"))
    assert document.startswith("How far") and re.search(r"It prints 44\.1\d*, which is the answer\.", document)
    assert task.check(request, answer("print(10**6)", "**1,000,000**."))
    assert refusal(task.check, request, answer("print(45)", "44.1")) == "program disagrees"
    assert refusal(task.check, request, answer("print(1/0)", "44.1")) == "program failed"
    assert refusal(task.check, request, answer("while True: pass", "1")) == "took too long"
    assert refusal(task.check, request, "The answer is 44.1.") == "not in the form"


def test_programs_are_kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "abc")
    assert run_program("print(sum(range(10)))", 2, 10**9).output == "45"
    assert "abc" not in run_program("import os; print(dict(os.environ))", 2, 10**9).output
    assert run_program("x = bytearray(2 * 10**9)", 2, 5 * 10**8).problem.endswith("MemoryError")
    assert run_program("print('x' * 10**5)", 2, 10**9).problem == "printed too much"
    assert run_program("open('f', 'wb').write(bytes(10**7))", 2, 10**9).problem != ""
    assert run_program("import time; time.sleep(60)", 0.2, 10**9).problem == "took too long"
    left = tmp_path / "left"
    child = f"import time; time.sleep(1); open({str(left)!r}, 'w')"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], stdout=-3, stderr=-3)"
    assert run_program(parent, 2, 10**9).problem == ""
    time.sleep(1.5)
    assert not left.exists(), "what the program left behind is killed with it"


def test_programs_cannot_read_files_or_leave_daemons(tmp_path: Path) -> None:
    if isolation() != "bubblewrap":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    (tmp_path / "secret").write_text("abc")
    assert "FileNotFoundError" in run_program(f"print(open({str(tmp_path / 'secret')!r}).read())", 2, 10**9).problem
    left = tmp_path / "left"
    daemon = f"import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(1); open({str(left)!r}, 'w')"
    assert run_program(daemon, 2, 10**9).problem == ""
    time.sleep(1.5)
    assert not left.exists()


def test_endless_output_ends_at_once() -> None:
    began = time.monotonic()
    assert run_program("while True: print('x' * 1000)", 20, 10**9).problem == "printed too much"
    assert time.monotonic() - began < 15
