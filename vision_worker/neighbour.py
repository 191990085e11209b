"""memini-ai 1.x beside us: its embedded PostgreSQL, and the settings by which it uses ours."""

import json
import os
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import asyncpg

from vision_worker.database import BROKEN, REFUSED

STATE_FILE = "~/.memini-ai/pgembed/server.json"
DATA_DIR = "~/.local/share/memini-ai/pgembed/data"
USER = DATABASE = "postgres"
ANSWER_SECONDS = 2.0


async def running() -> str | None:
    """URL of memini-ai's embedded PostgreSQL, if it answers now; starts nothing.

    Its state file is only where to ask: it outlives a server that was killed, and says
    "stopped" of one that could not be stopped.
    """
    for folder in _sockets():
        url = f"postgresql://{USER}@/{DATABASE}?host={quote(str(folder), safe='')}"
        try:
            connection = await asyncpg.connect(url, timeout=ANSWER_SECONDS)
            await connection.close(timeout=ANSWER_SECONDS)
        except (*REFUSED, *BROKEN, ValueError):
            continue
        return url
    return None


def serves(url: str) -> bool:
    """Whether the URL is that of memini-ai's embedded database, running or not."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = parse_qs(parts.query).get("host", [unquote(parts.netloc.rpartition("@")[2])])[0]
    if not host.startswith("/") or parts.path not in ("", f"/{DATABASE}"):
        return False
    return Path(host).resolve() in [folder.resolve() for folder in _sockets()]


def settings(url: str) -> dict[str, str]:
    """The variables by which memini-ai 1.x uses the database at ``url``."""
    return {"MEMINI_VECTOR_BACKEND": "postgres-external", "MEMINI_DB_URL": url}


def _sockets() -> list[Path]:
    """Folders where its socket may be, the likeliest first."""
    data = os.environ.get("MEMINI_PGEMBED_DATA_DIR") or DATA_DIR
    folders = [Path(data).expanduser().absolute()]
    try:
        state = json.loads(Path(STATE_FILE).expanduser().read_text(encoding="utf-8"))
        # It writes the folder as it is, without the escapes that belong in a URL.
        folder = state["uri"].partition("?host=")[2]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return folders
    return [Path(folder), *folders] if folder else folders
