"""Names of the directories of folders in a Maildir."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sync.sinks.maildir import build_folder_dir, build_mailbox_dir

HOSTILE = st.one_of(
    st.text(st.one_of(st.characters(), st.sampled_from("./\\\0%&~-AIXNBO \ud800")), max_size=30),
    st.text(min_size=150, max_size=400),
    st.builds("INBOX.{}".format, st.text(st.sampled_from("./&%~-ü\ud800a"), max_size=6)),
)


@pytest.mark.parametrize(
    ("folder", "directory"),
    [
        ("INBOX", ""),
        ("INBOX.Sent", ".Sent"),
        ("INBOX.Sent.2026", ".Sent.2026"),
        ("INBOX.Entwürfe & mehr", ".Entw&APw-rfe &- mehr"),
        ("INBOX.a/b%", ".a%2Fb%25"),
        ("INBOX.台北", ".&U,BTFw-"),
        ("INBOX.", ".%"),
        ("INBOX...", ".%.%.%"),
        ("INBOX.../../etc", ".%.%.%2F.%.%2Fetc"),
        ("Sent", ".%~Sent"),
        ("", ".%~%"),
        ("inbox", ".%~inbox"),
    ],
)
def test_names_are_those_of_maildir_plus_plus(folder: str, directory: str) -> None:
    assert build_folder_dir(folder) == directory


def test_a_mailbox_is_named_by_its_address() -> None:
    assert build_mailbox_dir("nurse@direct.example.org") == "nurse@direct.example.org"
    assert build_mailbox_dir("..") == "%2E%2E"
    assert build_mailbox_dir("") == "%"


def test_no_directory_has_a_name_that_windows_reserves() -> None:
    assert build_mailbox_dir("con.smith@direct.example.org") == "%63on.smith@direct.example.org"
    assert build_mailbox_dir("CONOUT$") == "%43ONOUT$"
    assert build_mailbox_dir("console@direct.example.org") == "console@direct.example.org"
    assert build_mailbox_dir("nurse@direct.example.org.") == "nurse@direct.example.org%2E"
    assert build_folder_dir("INBOX.Letters ") == ".Letters%20"


@given(folder=HOSTILE)
def test_no_name_leads_elsewhere(folder: str) -> None:
    for name in (build_folder_dir(folder), build_mailbox_dir(folder)):
        if name:
            assert PurePosixPath(name).parts == (name,)
            assert name not in (".", "..")
            assert name.isascii()
            assert name.isprintable()
            assert len(name) <= 255
            assert name[-1] not in ". "
    assert not build_mailbox_dir(folder).startswith(".")


@given(one=HOSTILE, other=HOSTILE)
def test_no_two_folders_share_a_directory(one: str, other: str) -> None:
    if one.encode("utf-16-le", "surrogatepass") != other.encode("utf-16-le", "surrogatepass"):
        assert build_folder_dir(one) != build_folder_dir(other)
        assert build_mailbox_dir(one) != build_mailbox_dir(other)
