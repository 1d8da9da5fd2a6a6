"""One-file pages: an HTML template with style sheets, scripts and data inlined, and a strict Content-Security-Policy.

All content is one JSON block and becomes text nodes in the browser, never markup: documents and generations are hostile
input. In addition `<`, `>` and `&` are escaped inside the JSON, so that no text can close the block, and the policy allows
only the hashes of the one style sheet and the one script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any


def inline(
    template: str, styles: Sequence[str], scripts: Sequence[str], *, title: str, data: Any, connect: str = "'none'"
) -> str:
    """The page from files of the package, named from its root. `connect` is where its script may send requests to."""
    style = "".join(map(_part, styles))
    script = '"use strict";\n(() => {\n' + "\n".join(map(_part, scripts)) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    values = {"title": html.escape(title), "policy": policy, "style": style, "script": script, "data": embed(data)}
    # One pass over the template: what is filled in is not searched for places to fill in again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match.group(1)], _part(template))


def embed(value: Any) -> str:
    """JSON that is safe inside a script element of an HTML page, whatever its strings hold.

    `<`, `>`, `&` could end the element or start a comment; U+2028/2029 are line ends to old script parsers; lone
    surrogates cannot be written as UTF-8. NaN and infinity, which JSON does not know, become null.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match.group()):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _part(name: str) -> str:
    return (files("ingot") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
