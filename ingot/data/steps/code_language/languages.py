"""Tables by which programming languages are recognised: file names, extensions, interpreters, and signs in the text.

Names are those of GitHub's linguist. An extension that several languages share lists them all, the commonest first; the
text decides among them.
"""

from __future__ import annotations

import re

FILE_NAMES = {
    "makefile": "Makefile",
    "gnumakefile": "Makefile",
    "makefile.am": "Makefile",
    "makefile.in": "Makefile",
    "dockerfile": "Dockerfile",
    "containerfile": "Dockerfile",
    "cmakelists.txt": "CMake",
    "gemfile": "Ruby",
    "rakefile": "Ruby",
    "vagrantfile": "Ruby",
    "jenkinsfile": "Groovy",
    "meson.build": "Meson",
    "build.bazel": "Starlark",
    "workspace": "Starlark",
    "pkgbuild": "Shell",
    ".bashrc": "Shell",
    ".profile": "Shell",
    ".vimrc": "Vim Script",
    "configure.ac": "M4",
    "go.mod": "Go Module",
    "cargo.lock": "TOML",
    "pipfile": "TOML",
}

EXTENSIONS: dict[str, tuple[str, ...]] = {
    extension: tuple(names.split("|"))
    for names, extensions in {
        "Ada": "adb ads",
        "Assembly": "s asm",
        "AWK": "awk",
        "Batchfile": "bat cmd",
        "C": "c",
        "C|C++|Objective-C": "h",
        "C#": "cs",
        "C++": "cpp cc cxx hpp hh hxx c++ ipp tcc",
        "CMake": "cmake",
        "CSS": "css",
        "Clojure": "clj cljs cljc edn",
        "CoffeeScript": "coffee",
        "Common Lisp": "lisp lsp asd",
        "Cuda": "cu cuh",
        "Cython": "pyx pxd pxi",
        "D": "d",
        "Dart": "dart",
        "Diff": "diff patch",
        "Elixir": "ex exs",
        "Emacs Lisp": "el",
        "Erlang": "erl hrl",
        "F#": "fs fsx fsi",
        "Fortran": "f f77 f90 f95 f03 f08 for",
        "GLSL": "glsl vert frag",
        "Go": "go",
        "Gradle|Groovy": "gradle",
        "GraphQL": "graphql gql",
        "Groovy": "groovy",
        "HTML": "html htm xhtml",
        "Haskell": "hs lhs",
        "INI": "ini cfg",
        "JSON": "json",
        "Java": "java",
        "JavaScript": "js mjs cjs jsx",
        "Jinja": "j2 jinja jinja2",
        "Julia": "jl",
        "Jupyter Notebook": "ipynb",
        "Kotlin": "kt kts",
        "LLVM": "ll",
        "Less": "less",
        "Lua": "lua",
        "M4": "m4",
        "Makefile": "mk mak",
        "Markdown": "md markdown",
        "Nim": "nim",
        "Nix": "nix",
        "OCaml": "ml mli",
        "Objective-C|MATLAB|Mathematica": "m",
        "Objective-C++": "mm",
        "PHP": "php php3 phtml",
        "Pascal": "pas pp",
        "Perl|Prolog": "pl",
        "Perl": "pm t",
        "PowerShell": "ps1 psm1 psd1",
        "Prolog": "pro prolog",
        "Protocol Buffer": "proto",
        "Python": "py pyi pyw",
        "R": "r",
        "Racket": "rkt",
        "Ruby": "rb rake gemspec",
        "Rust": "rs",
        "SCSS": "scss",
        "SQL": "sql",
        "SVG": "svg",
        "Sass": "sass",
        "Scala": "scala sc",
        "Scheme": "scm ss",
        "Shell": "sh bash zsh ksh",
        "Smarty": "tpl",
        "Starlark": "bzl star",
        "Swift": "swift",
        "SystemVerilog": "sv svh",
        "TOML": "toml",
        "Tcl": "tcl tm",
        "TeX": "tex sty cls ltx",
        "Text": "txt",
        "TypeScript|XML": "ts",
        "TypeScript": "tsx mts cts",
        "VHDL": "vhd vhdl",
        "Verilog": "v",
        "Vim Script": "vim",
        "Visual Basic .NET": "vb",
        "Vue": "vue",
        "WebAssembly": "wat wast",
        "XML": "xml xsd xsl xslt rng",
        "YAML": "yaml yml",
        "Zig": "zig",
        "reStructuredText": "rst",
    }.items()
    for extension in extensions.split()
}

INTERPRETERS = {
    "sh": "Shell",
    "bash": "Shell",
    "dash": "Shell",
    "zsh": "Shell",
    "ksh": "Shell",
    "python": "Python",
    "pypy": "Python",
    "perl": "Perl",
    "ruby": "Ruby",
    "node": "JavaScript",
    "nodejs": "JavaScript",
    "deno": "TypeScript",
    "php": "PHP",
    "lua": "Lua",
    "tclsh": "Tcl",
    "wish": "Tcl",
    "awk": "AWK",
    "gawk": "AWK",
    "mawk": "AWK",
    "rscript": "R",
    "make": "Makefile",
    "guile": "Scheme",
    "escript": "Erlang",
    "osascript": "AppleScript",
    "fish": "fish",
    "julia": "Julia",
    "ocaml": "OCaml",
    "pwsh": "PowerShell",
    "stack": "Haskell",
    "runhaskell": "Haskell",
}

SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*(?:\S+=\S+\s+)*)?(?:\S*/)?([A-Za-z]+)")

# What only one language begins with; asked in this order.
COMMENT = r"<!--(?:[^-]|-(?!->))*-->"  # ends at its first -->: with `.*?` a row of comments could be cut in 2ⁿ ways
PROLOGUE = rf"\s*(?:<\?xml[^>]*>\s*)?(?:{COMMENT}\s*)*"
STARTS: dict[str, re.Pattern[str]] = {
    language: re.compile(pattern, re.IGNORECASE)
    for language, pattern in {
        "HTML": rf"{PROLOGUE}<(?:!doctype html|html)",
        "SVG": rf"{PROLOGUE}(?:<!doctype svg[^>]*>\s*)?(?:{COMMENT}\s*)*<(?:\w+:)?svg\b",
        "XML": rf"\s*<\?xml|{PROLOGUE}<!doctype ",
        "PHP": r"\s*<\?php",
        "JSON": r"\s*(?:\{\s*[\"}]|\[\s*(?:[\"{\]]|-?\d|\[\s*[\"{\d-]))",
        "CSS": r"\s*(?:/\*(?:[^*]|\*(?!/))*\*/\s*)*(?:@(?:charset|import|font-face|media)\b|"
        r"(?:html|body|:root|\*|(?!#(?:define|if|include|pragma)\b)[.#][\w-]+)[^{};()=\n]*\{)",
        "Diff": r"(?:diff --git |Index: \S+\n=|--- \S.*\n\+\+\+ )",
    }.items()
}

# A sign at a line's start is worth one; a language is named if it has the most, and at least two. Text and data formats
# have weak signs that code has too: they need them in a good part of the lines that are no comments.
WEAK = frozenset(("YAML", "INI", "TOML", "Makefile", "Markdown", "CSS", "XML", "reStructuredText", "Assembly"))
WEAK_SHARE = {"YAML": 0.6, "Markdown": 0.1, "reStructuredText": 0.05}
USUAL_SHARE = 0.25
NO_COMMENT = r"(?m)^[ \t]*[^#*/;%\s].*"
# The expressions are RE2's, for whole lines: a class such as [^;] must exclude \\n too, or one match would take many lines.
SIGNS: dict[str, str] = {
    language: f"(?m)(?:{pattern}).*"
    for language, pattern in {
        "Python": r"^(?:from [\w.]+ import |import [\w.]+(?: as \w+)?\s*(?:#.*)?$|\s*(?:async )?def \w+\(.*|"
        r"class \w+(?:\(.*\))?:|"
        r"\s*(?:if|elif|for|while|with|except)\b.*:\s*(?:#.*)?$|if __name__ ==|\s*(?:self\.\w+|raise \w+|else:|"
        r"try:))",
        "C": r"^[ \t]*(?:#\s*include\s*[<\"][\w./+-]+\.h[>\"]|#\s*(?:define|ifdef|ifndef|endif|undef|if)\b|"
        r"typedef |struct \w+|"
        r"static |extern |unsigned |void \w|char \*|int \w+\()",
        "C++": r"^[ \t]*(?:#\s*include\s*<\w+>|namespace \w|template ?<|using namespace|(?:public|private|"
        r"protected):|class \w+[^;:\n]*"
        r"(?:\{|$)|.*\bstd::|virtual |constexpr |\w+::\w+\(|.*[A-Z>]::$|.*\b(?:nullptr|static_cast|dynamic_cast)\b)",
        "Objective-C": r"^[ \t]*(?:#import |@(?:interface|implementation|property|end|class|protocol)\b|[-+] ?\(\w+)",
        "Java": r"^[ \t]*(?:package [\w.]+;|import (?:static )?[\w.]+(?:\.\*)?;|(?:public|private|"
        r"protected)(?: \w+)* "
        r"(?:class|interface|enum|void|static|final|String|int|boolean)\b|@Override)",
        "C#": r"^[ \t]*(?:using [\w.]+;|namespace [\w.]+\s*;?$|(?:public|internal|private)(?: \w+)* (?:class|"
        r"struct|string|Task|var)\b|"
        r"\[\w+(?:\(.*\))?\]$|.*\bget; )",
        "JavaScript": r"^[ \t]*(?:(?:const|let|var) [\w{[].*=|function\b.*\(|(?:module\.)?exports\b|"
        r"['\"]use strict|import .* from "
        r"['\"]|export (?:default|const|function)|.*\brequire\(|.*=> ?[{(]|.*\b(?:document|window|console)\.)",
        "TypeScript": r"^[ \t]*(?:(?:export )?(?:interface|type|enum|declare|abstract class) \w+|"
        r".*\w\)?: (?:string|number|boolean|any|"
        r"void|unknown)\b|import type |(?:public|private|readonly) \w+[?:(])",
        "Go": r"^(?:package \w+$|import \(|import \"|func (?:\(\w+ \*?\w+\) )?\w+\(|\s*\w+(?:, \w+)* := |"
        r"type \w+ (?:struct|interface))",
        "Rust": r"^[ \t]*(?:use (?:\w+::|crate|super|std)|(?:pub(?:\(\w+\))? )?(?:fn|struct|enum|mod|trait|impl|"
        r"const [A-Z_]+:)\b|let mut \w+|"
        r"#!?\[\w+|impl\b|match |.*\) -> .*\{$)",
        "Ruby": r"^[ \t]*(?:require(?:_relative)? ['\"]|def \w+[\w?!]*(?:\(.*\))?$|end$|module \w+$|"
        r"class \w+(?: < [\w:]+)?$|attr_\w+ :|"
        r".*\bdo \|\w+|puts |unless |elsif )",
        "Perl": r"^[ \t]*(?:use (?:strict|warnings|[\w:]+)\b.*;|my [$@%(]|sub \w+ ?\{?|package [\w:]+;|our [$@%]|"
        r".*[$@%]\w+->|.*=~ |=head|__END__)",
        "PHP": r"^[ \t]*(?:<\?php|\$\w+ ?=|(?:public |private |protected |static )*function \w+\(|.*\$this->|"
        r"namespace [\w\\]+;|use [\w\\]+;)",
        "Shell": r"^[ \t]*(?:if \[|fi$|done$|esac$|then$|echo |export \w+=|\w+\(\) ?\{|case .* in$|for \w+ in |"
        r"do$|set -\w|"
        r"[A-Z_]+=|elif \[|while )",
        "Tcl": r"^[ \t]*(?:proc [\w:]+ \{|set \w+ |package require |namespace eval |puts |foreach \w+ |expr )",
        "Lua": r"^[ \t]*(?:local (?:function )?\w+|function [\w.:]+\(|end[,)]?$|.*\bthen$|return \{|--\[\[|elseif )",
        "R": r"^[ \t]*(?:[\w.]+ ?<- |library\(|.*<- ?function\(|#')",
        "Haskell": r"^(?:module [\w.]+|import (?:qualified )?[A-Z][\w.]*|\w+ ::|data \w+|instance |\{-# |"
        r"\s+where$|newtype )",
        "OCaml": r"^[ \t]*(?:let (?:rec )?\w+.*=|open [A-Z]\w*|module \w+ =|type \w+ =|\| .*->|val \w+ :|\(\*)",
        "Emacs Lisp": r"^[ \t]*\((?:defun|defvar|defcustom|require '|provide '|setq|defmacro|interactive)|^;;;",
        "Scheme": r"^[ \t]*\((?:define|define-module|use-modules|let\*? \(|lambda)",
        "SQL": r"(?i)^[ \t]*(?:select\b|insert into|create (?:table|index|view|function|or replace)|alter table|"
        r"drop |update \w+ set|grant )",
        "Fortran": r"(?i)^[ \t]*(?:subroutine |program \w+$|end (?:subroutine|do|if|function|module)|"
        r"implicit none|integer ::|real|call \w+\(|use \w+)",
        "HTML": r"(?i)^[ \t]*</?(?:!doctype html|html|head|body|div|p|script|a |table|li|ul|span|meta|link|h[1-6])\b",
        "XML": r"^[ \t]*<(?:\?xml|!DOCTYPE [a-gi-z]|\w+:\w+|/?[\w.-]+(?: [\w:.-]+=\"[^\"\n]*\")*\s*/?>)",
        "CSS": r"^[ \t]*(?:[.#@*:]?[\w-]+(?:[ ,.:>#\[][^;{\n]*)?(?:\{\s*$|\{[\w-]+:)|[\w-]+\s*:\s*[^;{}\n]+;|"
        r"@(?:media|import|font-face|charset))",
        "YAML": r"^(?:---|\s*- [\w\"'{]|\s*(?:- )?[\w./\"'-]+:(?: [^;{\n]*)?$)",
        "TOML": r"^(?:\[\[?[\w.\"-]+\]\]?$|[\w-]+ = (?:[\"\[{]|\d|true|false))",
        "INI": r"^(?:\[[^\]\n]+\]$|[\w.]+ ?= ?[^\"\[{(\n]*[^;{(\n]$|;)",
        "Makefile": r"^(?:\t[@$-]|\.PHONY|\w+\s*[:+?]=|\w+\s*=.*\$\(|ifn?eq |ifn?def |-?include |\S*\$\(\w+\).*:|"
        r"[\w.%/-]+ ?:[\w.%/ -]*\n\t)",
        "CMake": r"(?i)^[ \t]*(?:cmake_minimum_required|add_\w+|set\s?\([A-Z]|endif|target_\w+|find_package|"
        r"include_directories)\s?\(?",
        "TeX": r"^[ \t]*(?:\\(?:documentclass|begin|end|section|usepackage|newcommand|def|item)\b|%)",
        "Assembly": r"^[ \t]*(?:\.(?:text|globl|global|section|align|type|size|data|long|byte)\b|(?:mov\w?|push|pop|"
        r"jmp|call|ldr|str|add)[ \t]+[%$xr\[])",
        "Protocol Buffer": r"^[ \t]*(?:syntax = |message \w+ \{|(?:optional|repeated|required) \w|rpc \w+|"
        r"enum \w+ \{|package [\w.]+;)",
        "Vim Script": r"^[ \t]*(?:let [gbswl]:|let \w+ ?=|\" |endif$|endfor$|endfunc|finish$|func(?:tion)?! |set(?:local)? \w+|"
        r"syn(?:tax)? \w|hi(?:ghlight)? |(?:else)?if (?:exists|has)\(|if &|runtime |call \w+[#(]|"
        r"[nvi]?(?:nore)?map |au(?:tocmd)? |exe(?:cute)? )",
        "reStructuredText": r"^(?:\s*\.\. [\w:-]+::|[=\-~^\"*+#]{4,}$|:\w[\w -]*: |\.\. [_\[]|.*:[a-z]+:`|.*[a-z)]::$|"
        r".*``[^`\n]+``)",
        "Markdown": r"^(?:#{2,6} \S.*[^.]$|\s*```|[*+-] +[^:\n]+$|\d+\. +\w|\[[^\]\n]+\]: |\|.*\|\s*$|> |"
        r".*\[[^\]\n]+\]\([^)\n]+\))",
        "Diff": r"^(?:diff --git|@@ -\d|\+\+\+ |--- [ab/])",
        "Cython": r"^[ \t]*(?:cdef |cpdef |ctypedef |cimport |from [\w.]+ cimport |# ?cython:)|.*\bnogil\b",
        "Cuda": r".*(?:\b__(?:global|device|host|shared|forceinline)__\b|<<<|\bcuda[A-Z]\w+|\b(?:blockIdx|threadIdx)\.)",
        "PowerShell": r"^[ \t]*(?:\$\w+ ?= ?|param ?\(|function [A-Z]\w+-\w+|\[CmdletBinding|#requires |Set-\w|"
        r"(?:if|elseif) \(.*-(?:not|eq|ne|lt|gt|like|match|contains)\b|(?:Write|New|Get|Test|Remove|Add|Join|Out)-[A-Z]\w+|"
        r"\.(?:SYNOPSIS|PARAMETER|DESCRIPTION)|.*\$(?:env|script|global|PS\w+|_)\b)",
        "Batchfile": r"(?i)^[ \t]*(?:@?echo (?:off|on)\b|@?rem\b|@?set \"?\w+=|goto |:\w+\s*$|::|.*%(?:~\w|\w+%)|"
        r"@?(?:set|end)local|call |@?if (?:not )?(?:\"|exist|errorlevel|defined|/i))",
        "AWK": r"^[ \t]*(?:(?:BEGIN|END)\s*\{|(?:NR|NF|FNR)\b|\$\d|/.*/\s*\{|function \w+\(.*\)\s*\{?$|"
        r"printf ?\(?\"|.*\b(?:substr|gsub|sub|getline|split|length|toupper|tolower)\(.*\$\d)",
        "Jinja": r"^.*\{%-? ?(?:if|elif|else|endif|for|endfor|macro|endmacro|set|block|endblock|extends|include|import|from)\b",
    }.items()
}
