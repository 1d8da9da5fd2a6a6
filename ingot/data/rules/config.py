"""Options of the heuristic rules, with the published thresholds as defaults. Which paper and code is said at each class.

Fields named in `decides` are thresholds: they can be changed without measuring again. The others change what is measured
or how a text is rewritten.
"""

from __future__ import annotations

from ingot.data.rules.form_config import CompressionRatioStep, LengthStep, NewlinesStep, PiiStep, RepeatedNgramsStep
from ingot.data.rules.gopher_config import GopherQualityStep, GopherRepetitionStep
from ingot.data.rules.web_config import BadWordsStep, C4Step, FineWebStep, LineModifiersStep, MadladStep, UrlFilterStep

__all__ = [
    "BadWordsStep",
    "C4Step",
    "CompressionRatioStep",
    "FineWebStep",
    "GopherQualityStep",
    "GopherRepetitionStep",
    "LengthStep",
    "LineModifiersStep",
    "MadladStep",
    "NewlinesStep",
    "PiiStep",
    "RepeatedNgramsStep",
    "UrlFilterStep",
]
