"""The JSON Schema for editors: checked in, true, and of every shipped profile's shape."""

from __future__ import annotations

import json
from pathlib import Path

from sandboxd.data import data_folder
from sandboxd.profiles import names
from sandboxd.profiles.reading import _fields
from sandboxd.profiles.schema import Files, ProfileFile
from sandboxd.protocol.schema import profile_schema_text

FOLDER = Path(data_folder("profiles"))


def test_the_checked_in_schema_is_the_generated_one() -> None:
    """After a change: `sandboxd schema --profile > profiles/profile.schema.json`."""
    assert (FOLDER / "profile.schema.json").read_text() == profile_schema_text()


def test_it_names_every_key_and_refuses_others() -> None:
    schema = json.loads(profile_schema_text())
    top = schema["$defs"]["ProfileFile"]
    assert set(top["properties"]) == set(_fields(ProfileFile))
    assert set(schema["$defs"]["Files"]["properties"]) == set(_fields(Files))
    assert top["additionalProperties"] is False
    assert "description" in top["properties"]["extends"]


def test_shipped_profiles_tell_editors_of_it() -> None:
    for name in (*names(), "secrets"):
        first = (FOLDER / f"{name}.yaml").read_text().splitlines()[0]
        assert first == "# yaml-language-server: $schema=profile.schema.json"
