"""The error of a verifier that could not decide."""

from __future__ import annotations

from ingot.envs.errors import EnvironmentFailed


class VerifierError(EnvironmentFailed):
    """The verifier itself failed; the answer is neither right nor wrong."""


class NoVerdict(VerifierError):
    """The question itself ended the judge: `cause` says how. Whether the answer is to blame, or the reference, is not said."""

    def __init__(self, cause: str, *, place: str) -> None:
        super().__init__(cause, place=place, fix="leave the task out, if its reference answer is the cause")
        self.cause = cause
