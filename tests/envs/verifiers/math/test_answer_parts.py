"""What the mathematics verifier reads in an answer before any library is asked: spelling, numbers, sets, units, parts, sizes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ingot.envs.verifiers.math.answer_intervals import as_set
from ingot.envs.verifiers.math.answer_numbers import exact_decimals, plain_number
from ingot.envs.verifiers.math.answer_parts import (
    Collection,
    digits_of,
    read_collection,
    split_name,
    split_unit,
    without_parentheses,
)
from ingot.envs.verifiers.math.answer_text import canonical, is_words, too_costly, too_long

CANONICAL = {
    "": "",
    "$5$.": "5",
    "$$ 5 $$": "5",
    r"\( 5 \)": "5",
    r"\[5\]": "5",
    "**5**": "5",
    r"\boxed{5}": "5",
    "{5}": "5",
    "{5}{6}": "{5}{6}",
    "15.": "15",
    "**5**+**6**": "**5**+**6**",
    "**": "**",
    r"\boxed{\frac{1}{2}}": r"\frac{1}{2}",
    r"\boxed{{5}x}": "{5}x",
    r"\sqrt2x": r"\sqrt{2}x",
    r"\frac123": r"\frac{1}{2}3",
    r"\frac{1": r"\frac{1",
    r"\boxed{5}+\boxed{6}": r"\boxed{5}+\boxed{6}",
    "5...": r"5\ldots",
    "5..": "5..",
    r"\dfrac12": r"\frac{1}{2}",
    r"\frac1{72}": r"\frac{1}{72}",
    r"\frac{1}2": r"\frac{1}{2}",
    r"\frac{1}{2}": r"\frac{1}{2}",
    r"\tfrac\pi4": r"\frac{\pi}{4}",
    r"\frac": r"\frac",
    r"\frac1": r"\frac{1}",
    r"\sqrt3+\sqrt{x}": r"\sqrt{3}+\sqrt{x}",
    r"\sqrt{\frac12}": r"\sqrt{\frac{1}{2}}",
    r"\frac{\frac12}3": r"\frac{\frac{1}{2}}{3}",
    r"\binom nk": r"\binom{n}{k}",
    r"\binom123": r"\binom{1}{2}3",
    r"\binom{\{}2": r"\binom{\{}{2}",
    r"11,\! 111": "11,111",
    "1{,}000": "1,000",
    "x + y": "x+y",
    "2 pi": "2 pi",
    "3  apples": "3 apples",
    "3 (x)": "3 (x)",
    r"90^{\circ}": "90°",
    r"1 \text{ and } 2": "1,2",
    "1, or 2": "1,2",
    "orchid": "orchid",
    r"x<1 \text{ or } x>3": r"x<1\cup x>3",
    r"x\leqslant 2": r"x\le 2",
    r"\left( 1, 2 \right)": "(1,2)",
    r"\lbrace 1\rbrace": r"\{1\}",
    r"\text{ 5 }": "5",
    r"\mathrm{five}": r"\text{five}",
    "−5": "-5",
    "√2": r"\sqrt{2}",
    r"\$5": "5",
    r"5\%": "5%",
    "+5": "5",
    "= +5": "5",
    "<1,2>": r"\langle 1,2\rangle",
    "<1>2": "<1>2",
    r"\{ \}": r"\emptyset",
    "**Answer:** 5": "5",
    "answers": "answers",
    "1 000": "1000",
    "11 1000": "11 1000",
    "1 000/3": "1 000/3",
    "3.141 59": "3.14159",
    "1.5e-03": r"1.5\times 10^{-3}",
    "2e-1": "2e-1",
    "1e-1": r"1\times 10^{-1}",
    r"0.\bar{3}": r"0.\overline{3}",
    r"0.\dot{1}4285\dot{7}": r"0.\overline{142857}",
    "0.(3)": r"0.\overline{3}",
    "0.5(3)": "0.5(3)",
    "0.16666...": r"0.1\overline{6}",
    "0.166...": r"0.166\ldots",
}


def test_one_spelling() -> None:
    assert {text: canonical(text) for text in CANONICAL} == CANONICAL
    assert [text for text in CANONICAL.values() if canonical(text) != text] == [], "and it stays as it is"


NUMBERS = {
    "5": Fraction(5),
    "-5": Fraction(-5),
    "+5": Fraction(5),
    "5.": Fraction(5),
    "1,000": Fraction(1000),
    "1,000.50": Fraction(2001, 2),
    ".5": Fraction(1, 2),
    "-0.25": Fraction(-1, 4),
    "1,00": None,
    "3/4": Fraction(3, 4),
    "-3/4": Fraction(-3, 4),
    "1,000/3": Fraction(1000, 3),
    r"\frac{3}{4}": Fraction(3, 4),
    r"-\frac{3}{4}": Fraction(-3, 4),
    r"\frac{-3}{4}": Fraction(-3, 4),
    r"\frac{-3}{-4}": Fraction(3, 4),
    "3 1/2": Fraction(7, 2),
    "-3 1/2": Fraction(-7, 2),
    r"3\frac{1}{2}": Fraction(7, 2),
    r"3\frac{-1}{2}": None,
    r"3\frac{0}{5}": Fraction(3),
    r"3\frac{1}{-2}": None,
    "3 -1/2": None,
    "31/2": Fraction(31, 2),
    "1/0": None,
    r"\frac{1}{0}": None,
    r"0.\overline{3}": Fraction(1, 3),
    r"-0.1\overline{6}": Fraction(-1, 6),
    r".\overline{9}": Fraction(1),
    r"2.5\overline{81}": Fraction(2 * 990 + 5 * 99 + 81, 990),
    "٣": None,
    "x": None,
    "": None,
    "1 2": None,
}


def test_exact_numbers() -> None:
    assert {text: plain_number(text) for text in NUMBERS} == NUMBERS


def test_decimals_within_expressions() -> None:
    assert exact_decimals(r"0.25x+.5\pi") == r"0.25x+(\frac{5}{10})\pi", "0.25x may be a name"
    assert exact_decimals("12.34") == r"(\frac{1234}{100})"
    assert exact_decimals("12.5+3") == r"(\frac{125}{10})+3"
    assert exact_decimals(r"2.1\overline{6}+1") == r"(\frac{13}{6})+1"
    assert exact_decimals(r"-0.\overline{3}") == r"(\frac{-1}{3})"
    assert exact_decimals("1.2.3") == "1.2.3"


SETS = {
    "x<3": (r"(-\infty,3)", "x"),
    r"x\le 3": (r"(-\infty,3]", "x"),
    "x>3": (r"(3,\infty)", "x"),
    r"3\le t": (r"[3,\infty)", "t"),
    r"0\le x<1": ("[0,1)", "x"),
    r"1\ge x>0": ("(0,1]", "x"),
    r"-\infty<x\le 2": (r"(-\infty,2]", "x"),
    r"\theta\ne 0": (r"(-\infty,0)\cup(0,\infty)", r"\theta"),
    r"0\ne x": (r"0\ne x", ""),
    "0<x>1": ("0<x>1", ""),
    "0<1<x": ("0<1<x", ""),
    "0<x<1<y": ("0<x<1<y", ""),
    "a<b": ("a<b", ""),
    "2x<6": ("2x<6", ""),
    "e<x": (r"(e,\infty)", "x"),
    r"\pi<x": (r"(\pi,\infty)", "x"),
    "e<3": ("e<3", ""),
    "<3": ("<3", ""),
    "x<": ("x<", ""),
    "x<1,2": ("x<1,2", ""),
    "x,y<1": ("x,y<1", ""),
    "x": ("x", ""),
    r"\left": (r"\left", ""),
    r"\mathbb{R}": (r"(-\infty,\infty)", ""),
    r"\text{all real numbers}": (r"(-\infty,\infty)", ""),
    "No real solutions": (r"\emptyset", ""),
    "some solution": ("some solution", ""),
}


def test_inequalities_as_sets() -> None:
    assert {text: as_set(text) for text in SETS} == SETS


UNITS = {
    "5": ("5", ""),
    "5%": ("5", "%"),
    "5 percent": ("5", "%"),
    "90°": ("90", "°"),
    "90 degrees": ("90", "°"),
    "20°C": ("20", "°C"),
    "20°F": ("20", "°F"),
    "101_2": ("101", "base 2"),
    "1F_{16}": ("1F", "base 16"),
    "x_2": ("x_2", ""),
    r"5\text{ cm}": ("5", "cm"),
    r"5\text{ cm}^2": ("5", "cm 2"),
    r"5\text{ square cm}": ("5", "cm 2"),
    r"5\text{ cubic feet}": ("5", "foot 3"),
    r"5\text{ cu ft}": ("5", "foot 3"),
    r"x\text{ inches}": ("x", "inch"),
    r"\text{five}": (r"\text{five}", ""),
    r"x^\text{th}": (r"x^\text{th}", ""),
    "12 apples": ("12", "apple"),
    "12 sq in": ("12", "inch 2"),
    "12 in^2": ("12", "inch 2"),
    "12 km": ("12", "km"),
    "12 mL": ("12", "ml"),
    "12 xy": ("12 xy", ""),
    "12 sin": ("12 sin", ""),
    "x apples": ("x apples", ""),
    "2 Pi": ("2 Pi", ""),
    "3 m/s": ("3", "m / s"),
    "3 miles/hr": ("3", "mile / hour"),
    "9.8 m/s^2": ("9.8", "m / s 2"),
    "3 x/y": ("3 x/y", ""),
    "x m/s": ("x m/s", ""),
    r"5\text{ MW}": ("5", "megaw"),
    r"5\text{ mW}": ("5", "mw"),
    r"5\text{ Mb}": ("5", "mb"),
    r"5\text{ ms}": ("5", "ms"),
    r"5\text{ s}": ("5", "s"),
    r"5\text{ lbs}": ("5", "lb"),
    "18 million": ("18000000", ""),
    "18 million people": ("18000000", "people"),
    "1/8 thousand": ("125", ""),
    "1/3 hundred": (r"\frac{100}{3}", ""),
    r"\pi\text{ billion}": (r"\pi\cdot 1000000000", ""),
    "2 trillion": ("2000000000000", ""),
    "3 dozen eggs": ("36", "egg"),
    "2 dozens": ("24", ""),
}


def test_units() -> None:
    assert {text: split_unit(text) for text in UNITS} == UNITS


def test_names_in_front() -> None:
    assert split_name("x=3") == ("x", "3")
    assert split_name("f(x)=3") == ("f(x)", "3")
    assert split_name("a_{12}=3") == ("a_{12}", "3")
    assert split_name(r"x\in[1,2]") == ("x", "[1,2]")
    for text in ("a=b=3", "3", "3=x", "2x=3", r"x\int", ""):
        assert split_name(text) == ("", text)


def test_digits_in_a_base() -> None:
    assert digits_of("3E8") == digits_of("3e8") == digits_of(canonical("3E8")) != digits_of("300000000")
    assert digits_of("0,101") == digits_of("101")


COLLECTIONS = {
    "1,2": Collection("", "", ("1", "2")),
    "(1,2)": Collection("(", ")", ("1", "2")),
    "[1,2)": Collection("[", ")", ("1", "2")),
    "(1,2]": Collection("(", "]", ("1", "2")),
    r"\{1,2\}": Collection(r"\{", r"\}", ("1", "2")),
    r"\{1\}": Collection(r"\{", r"\}", ("1",)),
    r"\langle 1,2\rangle": Collection(r"\langle", r"\rangle", ("1", "2")),
    r"\langle 1,2)": None,
    r"(1,2\}": None,
    "(1)": None,
    "1": None,
    "": None,
    "1,": None,
    ",1": None,
    "1)(,2": None,
    "(1,2),(3,4)": Collection("", "", ("(1,2)", "(3,4)")),
    "f(1,2)": None,
    r"\frac{1,2}{3}": None,
    r"(1,2)\cup[3,4]": Collection(r"\cup", r"\cup", ("(1,2)", "[3,4]")),
    r"1\pm x": Collection("", "", ("1+x", "1-x")),
    r"\pm 2": Collection("", "", ("2", "-2")),
    r"\pm 1\pm 2": None,
    r"\begin{pmatrix}1\\2\end{pmatrix}": Collection(r"\langle", r"\rangle", ("1", "2")),
    r"\begin{bmatrix} \frac12\\2 \\3\end{bmatrix}": Collection(r"\langle", r"\rangle", (r"\frac{1}{2}", "2", "3")),
    r"\begin{pmatrix}1\\\\2\end{pmatrix}": None,
    r"\begin{pmatrix}1\end{pmatrix}": None,
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": None,
    r"\begin{vmatrix}1\\2\end{vmatrix}": None,
    r"1\{,2": None,
    r"\e,2": Collection("", "", (r"\e", "2")),
    r"1\,2,3": Collection("", "", (r"1 2", "3")),
}


def test_collections() -> None:
    assert {text: read_collection(text) for text in COLLECTIONS} == COLLECTIONS


def test_which_brackets_may_stand_for_which() -> None:
    kinds = {"list": ("", ""), "set": (r"\{", r"\}"), "point": ("(", ")"), "vector": (r"\langle", r"\rangle")}
    kinds |= {"closed": ("[", "]"), "half": ("(", "]"), "union": (r"\cup", r"\cup")}
    made = {name: Collection(*brackets, ("1", "2")) for name, brackets in kinds.items()}
    others = {(a, b) for a in made for b in made if a != b and made[a].may_stand_for(made[b])}
    assert others == {
        *(
            ("list", "set"),
            ("set", "list"),
            ("point", "vector"),
            ("vector", "point"),
            ("list", "point"),
            ("list", "vector"),
        )
    }
    assert all(made[name].may_stand_for(made[name]) for name in made)
    assert [name for name in made if made[name].ordered] == ["point", "vector", "closed", "half"]


def test_parentheses_around_the_whole() -> None:
    for text, bare in {
        "(42)": "42",
        "((x+1))": "x+1",
        "((1,2))": "(1,2)",
        "(x)(y)": "(x)(y)",
        "(1,2)": "(1,2)",
        "()": "()",
    }.items():
        assert without_parentheses(text) == bare
    for text in ("(xy", "xy)", "[x]", "-(x)", ""):
        assert without_parentheses(text) == text


def test_words() -> None:
    for text in ("red", r"\text{no}", "Evelyn", "two words", "(red)", "don't", "red-blue"):
        assert is_words(text), text
    for text in ("xy", "x", "2 red", "red+blue", "", r"\pi", r"\text{a}+1"):
        assert not is_words(text), text


def test_lengths_and_depths() -> None:
    assert not too_long("1" * 300) and too_long("1" * 301)
    assert not too_long("(" * 20 + ")" * 20) and too_long("(" * 21 + ")" * 21)
    assert not too_long("()" * 30) and too_long("[{(" * 7)
    assert not too_long("a\n\tb\r") and not too_long("1\u00a0000") and too_long("1\x00") and too_long("\ud800")


COSTS = {
    False: [
        *(
            "1" * 100,
            "1)+x",
            "10^{10000}",
            "x^{-9999}",
            "2^{x^2}",
            "2^{3^{4}}",
            "x^{10^4}",
            "10^{4^{x}}",
            "10000!",
            "n!",
            "(n!)",
            "1,000!",
        ),
        *(r"\binom{10000}{5000}", r"\binom{30000}{10000}", r"\binom{30000}{20000}", "x^2+y^2", "(x^2)^{2}", "x**2"),
        *("x^{2}y^{3}z^{4}", "e^{x}+e^{y}", "2^{x}+3^{y^2}"),
    ],
    True: [
        *(
            "1" * 101,
            "10^{10001}",
            "x^{-10001}",
            "x**10001",
            "2^{3^{4^5}}",
            "2^3^4^5",
            "9^{9^9}",
            "10^{5^{x}}",
        ),
        *("10001!", "(10001)!", "3!!", "(3!)!", r"\binom{30000}{10001}", r"\binom{30000}{19999}", "2^{-3^{-4^{5}}}"),
        *("10,001!", "2^{(3^{(4^5)})}", "2^{[3^{4^{5}}]}"),
    ],
}


@pytest.mark.parametrize("costly", COSTS)
def test_what_costs_too_much(costly: bool) -> None:
    assert [text for text in COSTS[costly] if too_costly(text) != costly] == []
