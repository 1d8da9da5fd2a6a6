r"""Regular expressions for the date and time formats of JSON schemas, exact about leap years.

Times have a zone and no leap seconds. llguidance has these formats too, but allows February 29 in any year and a 60th second in
any minute, which few parsers read.
"""

from __future__ import annotations

from typing import Any

YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"  # 0001 to 9999
BY_FOUR = r"(?:0[48]|[2468][048]|[13579][26])"
LEAP = rf"(?:[0-9]{{2}}{BY_FOUR}|{BY_FOUR}00)"
DATE = (
    rf"(?:{YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{LEAP}-02-29)"
)
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{CLOCK})"
FORMATS = {"date": rf"^{DATE}$", "time": rf"^{TIME}$", "date-time": rf"^{DATE}T{TIME}$"}
DATA = ("enum", "const", "default", "examples")  # keywords whose values are no schemas


def with_exact_formats(schema: Any) -> Any:
    """A schema with patterns instead of these formats."""
    if isinstance(schema, list):
        return [with_exact_formats(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: value if key in DATA else with_exact_formats(value) for key, value in schema.items()}
    name = changed.get("format")
    if not isinstance(name, str) or name not in FORMATS:
        return changed
    del changed["format"]
    return changed | {"allOf": [*changed.get("allOf", []), {"pattern": FORMATS[name]}]}
