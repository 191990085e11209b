"""Settings: one environment variable each, prefix ``MEMINI_IMAGE_``."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from vision_worker.errors import ConfigError

PREFIX = "MEMINI_IMAGE_"

ALLOWED_CLIP_MODELS = frozenset(
    {
        "clip-ViT-B-16",
        "clip-ViT-B-32",
        "clip-ViT-L-14",
    }
)
"""Models known by name on the hub; any folder with a CLIP model whose vectors fit 768 works too."""

Framing = Literal["tiles", "letterbox", "centre-crop"]


class VisionConfig(BaseSettings):
    """All settings. Raises ConfigError, naming the variable, for a value that cannot be used."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", extra="ignore", populate_by_name=True
    )

    search_enabled: bool = False
    """Whether the MCP tools exist at all."""
    clip_model: str = "clip-ViT-B-32"
    """Hub name or folder of the CLIP model."""
    clip_device: str = "auto"
    """``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``."""
    clip_framing: Framing = "tiles"
    """How a picture is made square: ``tiles``, ``letterbox`` or the published ``centre-crop``."""
    text_model: str = "auto"
    """Hub name or folder of the model of memini-ai's text vectors; ``auto``: all-MiniLM-L6-v2 where
    memini-ai uses the same database, else none; ``off``: none."""
    image_dir: str = Field(
        "~/.memini-ai/images", validation_alias=AliasChoices("image_dir", f"{PREFIX}DIR")
    )
    """Folder of the stored pictures."""
    max_file_size: int = 10 * 1024 * 1024
    """Largest file that is kept, in bytes; clamped to 1 KiB..100 MiB."""
    max_pixels: int = Field(178_000_000, ge=1)
    """Largest picture that is decoded, in pixels."""
    allowed_roots: Annotated[tuple[Path, ...], NoDecode] = ()
    """Folders that images may be read from, separated like PATH; empty: no limit."""
    namespace: str = Field("default", pattern=r"^[\w.:-]{1,64}$")
    """The partition that everything is saved to and searched in."""

    db_url: str | None = Field(None, repr=False)
    """PostgreSQL URL; unset: ``MEMINI_DB_URL``, then the embedded server."""
    db_pool_size: int = Field(8, ge=1, le=200)
    """Database connections a process may hold."""
    broker_url: str | None = Field(None, repr=False)
    """Redis or Valkey URL; unset: the embedded server."""
    state_dir: str | None = None
    """Folder of the embedded servers; unset: ``~/.memini-ai/vision-worker``, as root
    ``/var/lib/vision-worker``."""
    postgres_bin: str | None = None
    """Folder with ``postgres`` and ``initdb`` for the embedded server; unset: the wheel's."""
    valkey_bin: str | None = None
    """``valkey-server`` or ``redis-server`` to embed; unset: the wheel's."""

    batch_size: int = Field(32, ge=1, le=1024)
    """Images a worker claims and encodes at once."""
    lease_seconds: float = Field(60.0, ge=1, le=3600)
    """How long a claimed row stays with a worker that gives no sign of life."""
    max_attempts: int = Field(5, ge=1, le=100)
    """Attempts before a row that keeps failing is set aside."""
    sweep_seconds: float = Field(5.0, ge=0.1, le=3600)
    """How often an idle worker looks for pending rows without being rung."""
    decode_workers: int = Field(2, ge=1, le=64)
    """Child processes that decode pictures."""
    decode_seconds: float = Field(30.0, ge=0.1, le=600)
    """How long one picture may take to decode."""
    query_timeout: float = Field(5.0, ge=0.1, le=120)
    """Seconds a query waits for a worker to encode it."""
    local_encoder: bool = True
    """Whether a query may load the model in this process when no worker answers; the MCP server
    never does."""
    ready_seconds: float = Field(300.0, ge=1)
    """Age of the oldest claimable row at which the index no longer counts as ready."""

    keepsake_cap: int = Field(300, ge=1, le=100_000)
    """How many keepsakes a namespace holds; the least recently recalled make room."""
    keepsake_bytes: int = Field(2_000_000_000, ge=1)
    """How many bytes the pictures of a namespace's keepsakes may have together."""
    keepsake_trash_days: int = Field(30, ge=0, le=36_500)
    """How long the trash keeps what made room."""

    http_host: str = "127.0.0.1"
    """Address that ``vision-worker serve`` listens at; any but a loopback one needs a token."""
    http_port: int = Field(8377, ge=0, le=65535)
    """Port that ``vision-worker serve`` listens at; 0: a free one."""
    http_token: str | None = Field(None, repr=False)
    """What an HTTP client has to show; unset: only clients on this machine are served."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else "the environment"
            raise ConfigError(variable=_variable(name), problem=first["msg"]) from None

    @field_validator("max_file_size")
    @classmethod
    def _clamp(cls, value: int) -> int:
        return max(1024, min(value, 100 * 1024 * 1024))

    @field_validator("allowed_roots", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(Path(part).expanduser() for part in value.split(os.pathsep) if part)
        return value

    @field_validator(
        "db_url", "broker_url", "state_dir", "postgres_bin", "valkey_bin", "http_token"
    )
    @classmethod
    def _blank_is_unset(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("broker_url")
    @classmethod
    def _is_redis(cls, value: str | None) -> str | None:
        if value and not value.startswith(("redis://", "rediss://", "redis+socket://")):
            raise ValueError("it is not a redis://, rediss:// or redis+socket:// URL")
        try:
            urlsplit(value or "").port  # noqa: B018
        except ValueError:
            raise ValueError("its port is not a number from 0 to 65535") from None
        return value

    @field_validator("http_token")
    @classmethod
    def _fits_a_header(cls, value: str | None) -> str | None:
        if value and not re.fullmatch(r"[\x21-\x7e]+", value):
            raise ValueError("it may have only visible ASCII characters and no spaces")
        return value

    @property
    def resolved_db_url(self) -> str | None:
        """``db_url``, else ``MEMINI_DB_URL`` as it is now; None means the embedded server."""
        return self.db_url or os.environ.get("MEMINI_DB_URL") or None

    @property
    def resolved_image_dir(self) -> Path:
        return Path(self.image_dir).expanduser().absolute()

    @property
    def resolved_state_dir(self) -> Path:
        if self.state_dir:
            return Path(self.state_dir).expanduser().absolute()
        if os.geteuid() == 0:
            return Path("/var/lib/vision-worker")
        return Path("~/.memini-ai/vision-worker").expanduser()


def _variable(field: str) -> str:
    upper = field.upper()
    if upper.startswith(PREFIX):
        return upper
    return PREFIX + ("DIR" if field == "image_dir" else upper)
