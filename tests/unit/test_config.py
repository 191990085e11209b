"""Settings from the environment, and the sentence for each that cannot be used."""

import os
from pathlib import Path
from typing import Any

import pytest

from vision_worker.config import PREFIX, VisionConfig
from vision_worker.errors import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def configured(monkeypatch: pytest.MonkeyPatch, **variables: str) -> VisionConfig:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value)
    return VisionConfig()


def test_defaults_are_those_of_the_published_package() -> None:
    config = VisionConfig()
    assert (config.search_enabled, config.clip_model, config.clip_device) == (
        False,
        "clip-ViT-B-32",
        "auto",
    )
    assert (config.image_dir, config.max_file_size, config.max_pixels) == (
        "~/.memini-ai/images",
        10_485_760,
        178_000_000,
    )
    assert (config.allowed_roots, config.resolved_db_url, config.broker_url) == ((), None, None)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("SEARCH_ENABLED", "true", "search_enabled", True),
        ("CLIP_MODEL", "/models/clip", "clip_model", "/models/clip"),
        ("CLIP_FRAMING", "tiles", "clip_framing", "tiles"),
        ("DIR", "/pictures", "image_dir", "/pictures"),
        ("MAX_FILE_SIZE", "1", "max_file_size", 1024),
        ("MAX_FILE_SIZE", "999999999999", "max_file_size", 104_857_600),
        ("MAX_PIXELS", "1000", "max_pixels", 1000),
        ("ALLOWED_ROOTS", "/a:/b c:", "allowed_roots", (Path("/a"), Path("/b c"))),
        ("ALLOWED_ROOTS", "", "allowed_roots", ()),
        ("NAMESPACE", "team.one:2-3", "namespace", "team.one:2-3"),
        ("DB_URL", "", "db_url", None),
        ("BROKER_URL", "redis://host/1", "broker_url", "redis://host/1"),
        ("DECODE_SECONDS", "0.5", "decode_seconds", 0.5),
    ],
)
def test_a_variable_sets_its_field(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, field: str, expected: object
) -> None:
    assert getattr(configured(monkeypatch, **{variable: value}), field) == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SEARCH_ENABLED", "perhaps"),
        ("CLIP_FRAMING", "stretch"),
        ("MAX_FILE_SIZE", "ten"),
        ("MAX_PIXELS", "0"),
        ("NAMESPACE", "a b"),
        ("NAMESPACE", ""),
        ("NAMESPACE", "a/b"),
        ("DB_POOL_SIZE", "0"),
        ("BATCH_SIZE", "-1"),
        ("LEASE_SECONDS", "0"),
        ("DECODE_WORKERS", "1000"),
        ("QUERY_TIMEOUT", "soon"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(monkeypatch, **{variable: value})
    assert caught.value.details["variable"] == PREFIX + variable
    assert str(caught.value).startswith(f"{PREFIX}{variable} is not usable: ")


def test_every_variable_is_the_prefix_and_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field that takes numbers refuses a word under the name that it is set by."""
    for name, field in VisionConfig.model_fields.items():
        if field.annotation in (int, float, bool):
            with monkeypatch.context() as patch:
                patch.setenv(PREFIX + name.upper(), "word")
                with pytest.raises(ConfigError) as caught:
                    VisionConfig()
            assert caught.value.details["variable"] == PREFIX + name.upper()


def test_a_field_by_name_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}DIR", "/from/environment")
    values: dict[str, Any] = {"image_dir": "/from/code", "allowed_roots": (Path("/x"),)}
    config = VisionConfig(**values)
    assert (config.image_dir, config.allowed_roots) == ("/from/code", (Path("/x"),))


def test_the_database_falls_back_to_that_of_memini(monkeypatch: pytest.MonkeyPatch) -> None:
    config = VisionConfig()
    monkeypatch.setenv("MEMINI_DB_URL", "postgresql://host/memini")
    assert config.resolved_db_url == "postgresql://host/memini"
    own = configured(monkeypatch, DB_URL="postgresql://host/own")
    assert own.resolved_db_url == "postgresql://host/own"


def test_no_secret_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(
        monkeypatch, DB_URL="postgresql://me:s3cret@host/db", BROKER_URL="redis://:s3cret@host"
    )
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(config)


def test_folders_are_resolved_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = configured(monkeypatch, ALLOWED_ROOTS=f"~/shots{os.pathsep}/a")
    assert config.resolved_image_dir == tmp_path / ".memini-ai" / "images"
    assert config.allowed_roots == (tmp_path / "shots", Path("/a"))
    assert configured(monkeypatch, STATE_DIR="~/s").resolved_state_dir == tmp_path / "s"
