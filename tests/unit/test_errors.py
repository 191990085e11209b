"""One tree of errors, each with a stable code and a sentence."""

import string

import pytest

from vision_worker import errors
from vision_worker.errors import BrokerUnavailable, FileMissing, VisionError


def kinds(root: type[VisionError] = VisionError) -> list[type[VisionError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in kinds(child))]


KINDS = [kind for kind in kinds() if kind.__module__ == errors.__name__]


def fields(kind: type[VisionError]) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(kind.__doc__ or "") if name}


def test_codes_are_unique_words() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert all(set(code) <= set(string.ascii_lowercase + "_") for code in codes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_a_message_is_one_line_with_its_details(kind: type[VisionError]) -> None:
    details = {name: f"<{name}>" for name in fields(kind)}
    error = kind(**details)
    assert error.details == details
    assert all(value in str(error) for value in details.values())
    assert str(error) == " ".join(str(error).split())
    assert "{" not in str(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_comes_back_from_the_wire_as_what_it_was(kind: type[VisionError]) -> None:
    error = kind(**dict.fromkeys(fields(kind), "x"))
    revived = VisionError.revive(error.code, str(error))
    assert (type(revived), str(revived), revived.code, revived.transient) == (
        kind,
        str(error),
        error.code,
        error.transient,
    )


def test_a_code_nobody_knows_comes_back_as_the_root() -> None:
    revived = VisionError.revive("of_a_later_version", "a sentence")
    assert (type(revived), str(revived), revived.details) == (VisionError, "a sentence", {})


def test_braces_in_details_are_only_text() -> None:
    assert "{reason} {0}" in str(FileMissing(path="{reason} {0}"))


def test_a_missing_detail_is_a_fault_at_once() -> None:
    with pytest.raises(KeyError):
        BrokerUnavailable()
