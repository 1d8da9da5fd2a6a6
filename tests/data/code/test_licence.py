"""Licences: files of installed packages against what their metadata declares, Debian's own copies, and headers by hand."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from ingot.data.apply import apply
from ingot.data.steps.licence import LicenceStep, licence_of, parts_of

APACHE = '# Licensed under the Apache License, Version 2.0 (the "License");\n# you may not use this file'
GPL = """/* This program is free software; you can redistribute it and/or modify it under the terms of the
 * GNU General Public License as published by the Free Software Foundation; either version 2 of the License, or
 * (at your option) any later version. */"""
LGPL = """ * This library is free software; you can redistribute it and/or modify it under the terms of the GNU Lesser
 * General Public License as published by the Free Software Foundation; either version 2.1 of the License, or (at
 * your option) any later version."""
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files … The above copyright notice and this permission notice shall be included"""
BSD = "Redistribution and use in source and binary forms, with or without modification, are permitted"


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("# SPDX-License-Identifier: MIT\n", "MIT"),
        ("// SPDX-License-Identifier: (GPL-2.0-only OR MIT)\n", "GPL-2.0-only OR MIT"),
        ("/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */", "GPL-2.0 WITH Linux-syscall-note"),
        (APACHE, "Apache-2.0"),
        (GPL, "GPL-2.0-or-later"),
        (LGPL, "LGPL-2.1-or-later"),
        (MIT, "MIT"),
        (BSD, "BSD-2-Clause"),
        (BSD + " Neither the name of the copyright holder", "BSD-3-Clause"),
        ("# This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0.", "MPL-2.0"),
        (MIT + "\n" + APACHE, "Apache-2.0 AND MIT"),
        ("# Copyright 2020 Someone. All rights reserved.", None),
        ("A licence to kill.", None),
    ],
)
def test_headers(text: str, licence: str | None) -> None:
    assert licence_of(text) == licence


def test_files_of_installed_packages() -> None:
    """One licence in the metadata: it is among those found in the file; nothing else in nine of ten."""
    found, declared = [], []
    for package in importlib.metadata.distributions():
        expression = package.metadata.get("License-Expression")  # type: ignore[attr-defined]
        files = [file for file in package.files or [] if "licenses/LICENSE" in str(file)]
        if expression is None or " " in expression or not files:
            continue
        text = Path(str(files[0].locate())).read_text("utf-8", "replace")
        found.append(licence_of(text[:12_000]))
        declared.append(expression)
    if len(found) < 10:
        pytest.skip("needs ten installed packages that declare an SPDX licence")
    named = sum(
        licence is not None and wanted in parts_of(licence)[1] for licence, wanted in zip(found, declared, strict=True)
    )
    alone = sum(licence == wanted for licence, wanted in zip(found, declared, strict=True))
    assert named / len(found) >= 0.95  # measured: 70 of 71
    assert alone / len(found) >= 0.85  # measured: 64 of 71; the others carry further notices


def test_licences_of_debian() -> None:
    folder = Path("/usr/share/common-licenses")
    expected = {"Apache-2.0": "Apache-2.0", "BSD": "BSD-3-Clause", "GPL-2": "GPL-2.0-only", "GPL-3": "GPL-3.0-only"}
    expected |= {"LGPL-2.1": "LGPL-2.1-only", "LGPL-3": "LGPL-3.0-only", "MPL-2.0": "MPL-2.0", "CC0-1.0": "CC0-1.0"}
    present = {name: folder / name for name in expected if (folder / name).is_file()}
    if not present:
        pytest.skip("needs Debian's common licences")
    for name, path in present.items():
        assert licence_of(path.read_text("utf-8")[:12_000]) == expected[name]


def test_rule() -> None:
    texts = [
        "# SPDX-License-Identifier: " + tag
        for tag in ("MIT", "GPL-3.0-only", "GPL-3.0-only OR MIT", "MIT AND GPL-3.0-only")
    ]
    step = LicenceStep(permissive=True, unknown="remove")
    reasons = apply(step, [*texts, "x = 1"]).column("removed_by").to_pylist()
    assert [bool(reason) for reason in reasons] == [False, True, False, True, True]
    assert reasons[1] == "licence GPL-3.0-only is not allowed"
    assert apply(LicenceStep(), texts).column("removed_by").to_pylist() == [None] * 4
