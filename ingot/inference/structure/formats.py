r"""The formats of JSON Schema as regular expressions: what is written is always valid, if not always all that is.

Dates are those of the calendar (leap years too), times have a zone and no leap second, as RFC 3339 writes them. Names of
hosts and mail addresses are the common, unquoted ASCII forms; a URI has one of the schemes http, https or ftp.
"""

from __future__ import annotations

YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"  # 0001 to 9999
BY_FOUR = r"(?:0[48]|[2468][048]|[13579][26])"
LEAP = rf"(?:[0-9]{{2}}{BY_FOUR}|{BY_FOUR}00)"
DATE = (
    rf"(?:{YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{LEAP}-02-29)"
)
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{CLOCK})"
DAY_TIME = r"T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)"
DURATION = (
    rf"P(?:[0-9]{{1,4}}W|{DAY_TIME}|(?:[0-9]{{1,4}}Y(?:[0-9]{{1,4}}M(?:[0-9]{{1,4}}D)?)?"
    rf"|[0-9]{{1,4}}M(?:[0-9]{{1,4}}D)?|[0-9]{{1,4}}D)(?:{DAY_TIME})?)"
)
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST = rf"{LABEL}(?:\.{LABEL}){{0,2}}"
ATOM = r"[A-Za-z0-9_+-]{1,20}(?:\.[A-Za-z0-9_+-]{1,20}){0,2}"
OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"{OCTET}(?:\.{OCTET}){{3}}"
GROUP = r"[0-9a-fA-F]{1,4}"
IPV6 = "|".join(
    [rf"(?:{GROUP}:){{7}}{GROUP}"]
    # "::" stands for at least one group: so many groups before it, the others after it
    + [
        (rf"{GROUP}(?::{GROUP}){{{before - 1}}}" if before else "")
        + "::"
        + (rf"(?:{GROUP}(?::{GROUP}){{0,{6 - before}}})?" if before < 7 else "")
        for before in range(8)
    ]
)
PATH = r"(?:/[A-Za-z0-9_.~-]*)*"
URI = rf"(?:https?|ftp)://{HOST}(?::[1-9][0-9]{{0,3}})?{PATH}(?:\?[A-Za-z0-9_.~=&-]*)?(?:#[A-Za-z0-9_.~-]*)?"
HEX = "[0-9a-fA-F]"

FORMATS = {
    "date": DATE,
    "time": TIME,
    "date-time": rf"{DATE}T{TIME}",
    "duration": DURATION,
    "uuid": rf"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}",
    "email": rf"{ATOM}@{HOST}",
    "hostname": HOST,
    "ipv4": IPV4,
    "ipv6": IPV6,
    "uri": URI,
}
