"""Answers beside their near neighbours: what a mathematician would accept for a reference, and what not."""

from __future__ import annotations

import pytest

from ingot.envs.verifiers.math.same_answer import math_reward, same_answer

NEIGHBOURS: dict[str, tuple[list[str], list[str]]] = {
    # groups of digits
    "1000": (
        [r"1\,000", r"1\ 000", "1 000", "1~000", r"1\;000", "1\u202f000", "1,000", "1{,}000", r"\$1\,000", r"1\,000.0"],
        [r"1\,00", r"1\,0000", r"10\,000", r"1.000", r"1 0 0 0", r"1, 000, 0", r"1\,000\,000", "100 0"],
    ),
    "12345678.5": ([r"12\,345\,678.5", "12 345 678.50"], [r"12\,345\,678", r"12\,345\,678,5", r"1\,2345\,678.5"]),
    "3.14159": (
        [r"3.141\,59", "3.141 59", "3.141590"],
        [r"3.14159\ldots", "3.14159...", r"\pi", "3.141 5", "3.141, 59", "3.14"],
    ),
    r"3\frac{1}{2}": (["3 1/2", "7/2", r"3 \frac12"], ["31/2", "3 125/2"]),
    "3 125/200": (["3.625", "29/8"], ["15.625", "3125/200"]),
    # repeating decimals
    r"\frac{1}{3}": (
        [
            r"0.\overline{3}",
            r"0.\bar{3}",
            r"0.\bar3",
            r"0.\dot{3}",
            r"0.3\overline{3}",
            r".\overline{3}",
            "0.(3)",
            "0.333...",
            r"0.333\ldots",
            "0.3333…",
        ],
        [
            "0.3",
            "0.333",
            "0.33333333",
            r"0.\overline{30}",
            r"-0.\overline{3}",
            "0.3...",
            r"3.\overline{3}",
            r"\overline{3}",
        ],
    ),
    r"\frac{1}{6}": (
        [r"0.1\overline{6}", r"0.1\dot{6}", "0.1666..."],
        [r"0.\overline{16}", "0.1666", r"0.\overline{6}"],
    ),
    r"\frac{1}{7}": ([r"0.\overline{142857}", r"0.\dot{1}4285\dot{7}"], ["0.142857", r"0.142857\ldots"]),
    r"\frac{\pi}{3}": ([r"0.\overline{3}\pi"], [r"0.3\pi", r"0.333\pi"]),
    "1": ([r"0.\overline{9}", "0.999..."], ["0.999", r"0.9\overline{8}"]),
    "0.333": (["333/1000"], [r"0.\overline{3}", r"0.333\ldots", "0.333..."]),
    r"\overline{CD}": ([r"\overline{C D}"], ["CD", r"\overline{DC}", r"\overline{cd}"]),
    # powers of ten
    "1500": (
        ["1.5e3", "1.5E3", "1.5e+3", "1.50e03", r"1.5\times10^3", r"1.5 \cdot 10^{3}"],
        ["1.5e2", "1.5e-3", "15e3"],
    ),
    "0.0015": (["1.5e-3", "1.5E-03", r"1.5\times 10^{-3}"], ["1.5e3", "1.5e-2", "1.5 - 3e"]),
    "3e8": (["300000000", r"3 \times 10^8", "300,000,000"], ["3e7", "30,000,000", "3e"]),
    "2e-1": (["2e - 1", "-1+2e"], ["0.2", "2e+1", "2E-1"]),
    "3E8_{16}": (["3E8"], ["300000000", "3E9_{16}"]),
    # what stands in front of an answer
    "5": (
        [
            "=5",
            "= 5",
            "x=5",
            "x = 5.0",
            "**Answer:** 5",
            "Answer: 5",
            r"\text{Answer: }5",
            r"\textbf{Answer:} 5",
            "The answer is 5",
            "**5**",
            "(5)",
            "((5))",
            r"\left(5\right)",
        ],
        ["=-5", "5=", "==", "x=6", "**Answer:** 6", "answer", "(5,5)", "(5)(5)", "()", "5)", "-(5)", "x=5=6"],
    ),
    r"(x-1)(x+1)": (["((x-1)(x+1))", "x^2-1", "(x+1)(x-1)"], ["x-1)(x+1", "(x-1)", "x^2+1", "(x-1)+(x+1)"]),
    "(4x - 7)": (["4x-7", "-7+4x"], ["4x+7", "(4x)(-7)", "(4x,-7)"]),
    # intervals and inequalities
    r"(-\infty,3)": (
        ["x<3", "3>x", r"x \lt 3", "t<3", r"-\infty<x<3", r"x\in(-\infty,3)", r"(-\infty, 3)", "2x<6"],
        ["x>3", r"x\le 3", "x<4", r"(-\infty,3]", "(3,-\\infty)", "3", "x=3", r"-3<x<3", r"x<3\pi"],
    ),
    r"[0,1]": (
        [r"0\le x\le 1", r"0 \leq x \leq 1", r"1\ge x\ge 0", "0≤y≤1", r"x\in[0,1]", r"\left[0, 1\right]"],
        ["0<x<1", r"0\le x<1", "(0,1)", r"[0,1)", r"0\le x\le 2", r"\{0,1\}", "0,1", r"0\ge x\ge 1", r"1 \le x\le 0"],
    ),
    r"x \ge \frac{1}{2}": (
        [r"[0.5,\infty)", r"\frac12\le x", r"x\geq 0.5", "2x≥1", r"[\frac{1}{2}, +\infty)"],
        ["x>0.5", r"(0.5,\infty)", r"x\le 0.5", r"y \ge \frac12", r"x \ge -\frac12"],
    ),
    r"(-\infty,1)\cup(3,\infty)": (
        [r"x<1 \text{ or } x>3", "x < 1 or x > 3", "x>3 or x<1", r"(3,\infty)\cup(-\infty,1)"],
        [r"x<1 \text{ and } x>3", "1<x<3", r"x\le 1 or x>3", r"x<1", r"(-\infty,1)\cap(3,\infty)"],
    ),
    r"(-\infty,2)\cup(2,\infty)": ([r"x\ne 2", r"x \neq 2", "x≠2"], ["x=2", r"x\ne -2", r"\mathbb{R}", "2"]),
    "(-3,3)": (["|x|<3", "-3<x<3", "(-3, 3)"], ["|x|>3", r"|x|\le 3", "|x|<2", "-3<x", "(3,-3)"]),
    # sets with names
    r"\mathbb{R}": (
        [
            r"\mathbb R",
            "ℝ",
            r"\R",
            r"(-\infty,\infty)",
            r"(-\infty, +\infty)",
            r"x\in\mathbb{R}",
            r"-\infty<x<\infty",
            r"\text{all real numbers}",
            "All real numbers",
            "all reals",
        ],
        [
            r"\mathbb{Z}",
            r"\mathbb{Q}",
            "R",
            r"(0,\infty)",
            r"\infty",
            r"[-\infty,\infty)",
            r"\mathbb{R}^2",
            r"\emptyset",
        ],
    ),
    r"\emptyset": (
        [r"\varnothing", "∅", r"\{\}", r"\{ \}", "no solution", r"\text{no real solutions}", r"\text{empty set}"],
        ["0", r"\{0\}", r"\{\emptyset\}", r"\text{one solution}", r"\mathbb{R}", "", "()"],
    ),
    # points and vectors
    "(1,2)": (
        [
            r"\langle 1,2\rangle",
            r"\left\langle 1, 2\right\rangle",
            "⟨1,2⟩",
            "<1,2>",
            "1, 2",
            r"\begin{pmatrix}1\\2\end{pmatrix}",
            r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}",
        ],
        [
            r"\langle 2,1\rangle",
            r"\langle 1,2,0\rangle",
            r"\langle 1,2)",
            r"\{1,2\}",
            "[1,2]",
            "(1,2]",
            "12",
            "1<2",
            "(1,2)/2",
            r"\begin{pmatrix}2\\1\end{pmatrix}",
            r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
            r"2\begin{pmatrix}1\\2\end{pmatrix}",
        ],
    ),
    r"\begin{pmatrix} 1/2 \\ -3 \end{pmatrix}": (
        [r"\langle 0.5,-3\rangle", r"(\frac12,-3)", r"\begin{pmatrix}\frac{1}{2}\\-3\end{pmatrix}"],
        [
            r"\begin{pmatrix}1/2&-3\end{pmatrix}",
            r"\begin{pmatrix}-3\\1/2\end{pmatrix}",
            r"\begin{pmatrix}1/2\\3\end{pmatrix}",
            r"\langle 0.5\rangle",
            "-3",
            r"\begin{vmatrix}1/2\\-3\end{vmatrix}",
        ],
    ),
    # units
    "3": (
        ["3 m/s", "3 km/h", r"3\,\mathrm{m/s}", r"3\text{ m/s}", "3 g/cm^3", "3 miles per hour"],
        ["3 x/y", "3m/s", "3/s", "m/s", "3 m/s 3", "3 million", "3 thousand"],
    ),
    r"3 \text{ m/s}": (
        ["3", "3 m/s", r"3\,\text{m/s}"],
        ["3 km/h", "3 s/m", r"3\text{ m}", "3 ms", "4 m/s", r"3 \text{ m/s}^2"],
    ),
    r"5 \text{ MW}": (["5", r"5 \text{ MW}", r"5\,\mathrm{MW}"], [r"5 \text{ mW}", r"5 \text{ kW}"]),
    # numbers in words
    "18": (
        ["18 apples", "18.0", r"18\text{ people}"],
        ["18 million", r"18 \text{ million}", "18 thousand people", "18 dozen"],
    ),
    "18 million": (
        [
            "18,000,000",
            "18000000",
            r"18 \text{ million}",
            r"18\times10^6",
            "18 million dollars",
            r"\$18 million",
            "0.018 billion",
        ],
        ["18", "18 thousand", "18 billion", "180 million", r"18 \text{ dollars}"],
    ),
    r"\frac{1}{2} \text{ million}": (["500000", "0.5 million"], [r"\frac12", "0.5", "50000"]),
    # letters
    r"\pi r^2": ([r"r^2\pi", r"\pi\cdot r^2"], [r"\pi R^2", r"\Pi r^2", r"2\pi r", r"\pi r"]),
    "p": (["(p)"], ["P", "q", "2p", "pp"]),
    "P": (["P"], ["p"]),
    "2AB": (["2BA", r"2A\cdot B"], ["2ab", "2Ab"]),
    "abc": (["abc", "(abc)"], ["ABC", "AbC", "ab"]),
    r"\text{A,C,F}": (["A,C,F", "A, C, F"], ["a,c,f", "A,C", "A,C,E"]),
    r"\Gamma": ([r"\Gamma"], [r"\gamma", "G"]),
    r"\delta": ([r"\delta"], [r"\Delta", "d"]),
    "f(x)=x+1": (["x+1", "f(x) = 1+x"], ["F(x)=x+1", "f(x)=X+1", "g(x)=x+1"]),
    "x = 2": (["2", "x=2"], ["X=2", "y=2", "x=-2"]),
    r"\text{Yes}": (["yes", "YES", r"\textbf{yes}"], ["no", "y", "yes, but"]),
    "forty": (["Forty", "FORTY", r"\text{Forty}"], ["fourty", "40"]),
    r"\text{1:03 PM}": (["1:03 PM", r"\text{1:03 pm}"], ["1:03 AM", "1:30 PM"]),
}


def test_neighbours() -> None:
    right = [(reference, answer) for reference, (answers, _) in NEIGHBOURS.items() for answer in answers]
    wrong = [(reference, answer) for reference, (_, answers) in NEIGHBOURS.items() for answer in answers]
    assert [each for each in right if not same_answer(each[1], each[0])] == [], "right, and not accepted"
    assert [each for each in wrong if same_answer(each[1], each[0])] == [], "wrong, and accepted"


@pytest.mark.parametrize(
    "reply",
    [
        "**Answer:** 5",
        "**Answer**: 5",
        "**Answer: 5**",
        "Answer:**5**",
        "**The answer is 5.**",
        "So: **Final Answer:** $5$.",
    ],
)
def test_a_bold_answer_is_found(reply: str) -> None:
    assert math_reward(reply, "5") == 1.0
    assert math_reward(reply, "6") == 0.0
    assert math_reward(reply + "\n**Answer:** 6", "5") == 0.0, "two answers are none"
