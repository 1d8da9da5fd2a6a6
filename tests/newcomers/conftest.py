"""The tiny checkpoint and shards of the evals' tests."""

from __future__ import annotations

from tests.evals.conftest import world as world
