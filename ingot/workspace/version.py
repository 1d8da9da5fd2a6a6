"""Names the version of this package: that of pyproject.toml."""

VERSION = "0.1.0"
