"""Programming languages: by name against pygments on real files, by content on the standard library and by hand."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from ingot.data.apply import apply
from ingot.data.steps.code_language import CodeLanguageStep, by_content, languages_of

CASES = [
    ("src/Makefile", "", "Makefile", "name"),
    ("a/b.py", "", "Python", "extension"),
    ("A.PY", "", "Python", "extension"),
    ("x.h", "#include <stdio.h>\n#define A 1\nstruct a;\n", "C", "extension"),
    ("x.h", "#include <vector>\nnamespace a {\ntemplate <class T>\nclass B {\n", "C++", "extension"),
    ("x.h", "#import <Foundation.h>\n@interface A\n@end\n", "Objective-C", "extension"),
    ("x.pl", "use strict;\nmy $x = 1;\n", "Perl", "extension"),
    ("x.ts", '<?xml version="1.0"?>\n<TS version="2.0">\n<context>\n', "XML", "extension"),
    ("x.ts", "export interface A {\n  a: string;\n}\n", "TypeScript", "extension"),
    ("run", "#!/usr/bin/env python3\n", "Python", "shebang"),
    ("run", "#! /bin/sh -e\n", "Shell", "shebang"),
    ("run", "#!/usr/bin/env -S FOO=1 perl -w\n", "Perl", "shebang"),
    (None, "package main\n\nimport (\n\nfunc main() {\n\tx := 1\n", "Go", "content"),
    (None, "use std::io;\n\npub fn main() {\n    let mut x = 1;\n", "Rust", "content"),
    (None, "package a.b;\n\nimport java.util.List;\n\npublic class A {\n", "Java", "content"),
    (None, "<!-- note -->\n<!DOCTYPE html>\n<p>", "HTML", "content"),
    (None, "<!-- a -->\n" * 40 + "<p>", None, None),  # a row of comments must not take for ever
    (None, '<?xml version="1.0"?>\n<!-- icon -->\n<svg width="1">', "SVG", "content"),
    (None, '{"a": [1, 2]}', "JSON", "content"),
    (None, "[section]\nname = some text\nother = more text\n", "INI", "content"),
    (None, "name: a\nsteps:\n  - run: make\n  - run: make test\n", "YAML", "content"),
    (None, "body {margin:0}.a{color:red}", "CSS", "content"),
    (None, "cimport numpy\n\ncdef int add(int a):\n    return a\n", "Cython", "content"),
    (None, "#include <a.h>\n__global__ void f() {\n  int i = threadIdx.x;\n}\n", "Cuda", "content"),
    (None, "#!/usr/bin/env pwsh\n", "PowerShell", "shebang"),
    (None, "param(\n$Name = 'a'\nWrite-Host $Name\n", "PowerShell", "content"),
    (None, "@echo off\nset A=1\nif exist %A% goto end\n:end\n", "Batchfile", "content"),
    (None, "BEGIN { n = 0 }\n/a/ { n++ }\nEND { print n }\n", "AWK", "content"),
    (None, "{% for a in b %}\n{{ a }}\n{% endfor %}\n", "Jinja", "content"),
    (None, "Title\n=====\n\n.. note:: A word of ``code``.\n", "reStructuredText", "content"),
    (None, "## Title\n\nA [link](a.md) in a text.\n\n```\ncode\n```\n", "Markdown", "content"),
    (None, "The cat sat on the mat.\nIt was warm.\n", None, None),
    ("notes.unknown", "", None, None),
]


@pytest.mark.parametrize(("path", "text", "language", "by"), CASES)
def test_by_hand(path: str | None, text: str, language: str | None, by: str | None) -> None:
    assert languages_of([path], [text]) == [(language, by)]


def test_standard_library_by_content() -> None:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = [text for text in (path.read_text("utf-8", "replace") for path in files) if len(text) > 1000]
    found = by_content([text[:8_000] for text in texts])
    assert found.count("Python") / len(found) > 0.9


def test_names_agree_with_pygments() -> None:
    lexers = pytest.importorskip("pygments.lexers", reason="compares with pygments")
    same = {"Shell": "Bash", "Batchfile": "Batchfile", "Vim Script": "VimL", "Emacs Lisp": "EmacsLisp", "TeX": "TeX"}
    extensions = "py c cpp java js go rs rb php sh tcl lua hs ml el f90 css json yaml toml vim tex cmake kt swift scala"
    names = [f"a.{extension}" for extension in f"{extensions} proto diff bat jl dart".split()]
    names += ["Makefile", "CMakeLists.txt"]
    for name in names:
        [(language, _)] = languages_of([name], [""])
        assert language is not None
        expected = lexers.get_lexer_for_filename(name)
        known = {expected.name.lower(), *(alias.lower() for alias in expected.aliases)}
        assert known & {language.lower(), same.get(language, "").lower()}, (name, language, expected.name)


def test_step_removes_others() -> None:
    rows = [{"text": "", "path": "a.py"}, {"text": "", "path": "a.c"}, {"text": "words", "path": None}]
    reasons = apply(CodeLanguageStep(keep=["Python"]), rows).column("removed_by").to_pylist()
    assert reasons == [None, "code language C is not Python", "code language None is not Python"]
