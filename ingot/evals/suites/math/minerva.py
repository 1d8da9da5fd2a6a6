r"""Final answers in Minerva's form (Lewkowycz et al. 2022, arXiv 2206.14858, appendix D): found in a text, and in one spelling.

A worked example ends in "Final Answer: The final answer is $x$. I hope it is correct.", and so must a reply that counts. Both
answers are then respelled by the same rules; units and small words go, shorthand such as \frac12 is written out. The rules are
those of the LM evaluation harness 0.4.13, which repairs some of the paper's (a comma goes only between thousands, `ft` stays in
\left).
"""

from __future__ import annotations

import re

END = "I hope it is correct."
FINAL = re.compile(rf"Final Answer: The final answer is(.*?). {END}")
INVALID = "[invalidanswer]"

UNITS = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", "sue", "points", "feet"),
    *("minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students"),
    *("childrentickets", "multiples"),
)
AROUND_DOTS = ("units", r"\ldots")  # the harness deletes in this order, and a deletion can join what comes after it
SIGNS = (
    *(r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}", r"\mathrm{th}"),
    *(r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots"),
)
REPLACED = (
    *(("an ", ""), ("a ", ""), (".$", "$"), (r"\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text")),
    *((r",\text{and}", ","), (r"\text{and}", ","), (r"\text{m}", r"\text{}")),
)
COMMAND = re.compile(r"(\\[a-zA-Z]+)")
LATER = (
    (re.compile(r".*?\$(.*?)\$.*"), r"$\1$"),  # what stands between dollar signs, if anything does
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt(\[[^\]]*\])(\w)"), r"sqrt\1{\2}"),
    (re.compile(r"sqrt(?!\[)([^{])"), r"sqrt{\1}"),
)
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+")


def final_answer(text: str) -> str:
    """The answer in the closing sentence; its last words may be missing, because they may be where the text was cut."""
    found = FINAL.search(text + END)
    return found[1].strip() if found else INVALID


def respelled(answer: str) -> str:
    """The one spelling of an answer."""
    answer = answer.rpartition("=")[2]
    for unit in UNITS:
        answer = re.sub(rf"(?<!\\)\b{unit}\b", "", answer)
    for before, after in REPLACED:
        answer = answer.replace(before, after)
    for unit in UNITS:
        answer = _outside_commands(answer, unit)
        if unit == AROUND_DOTS[0]:
            answer = answer.replace(AROUND_DOTS[1], "")
    for sign in SIGNS:
        answer = answer.replace(sign, "")
    for pattern, replacement in LATER:
        answer = pattern.sub(replacement, answer)
    answer = answer.replace("$", "")
    return answer.replace(",", "") if THOUSANDS.fullmatch(answer) else answer


def _outside_commands(answer: str, unit: str) -> str:
    parts = COMMAND.split(answer)  # every second one is a command
    return "".join(part if number % 2 else part.replace(unit, "") for number, part in enumerate(parts))
