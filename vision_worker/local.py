"""The embedded servers: PostgreSQL and Valkey for whoever has set up neither.

The first process of a user that needs them starts them, all others share them, they outlive every
one of them, and ``stop`` ends them. They listen on unix sockets only.
"""

from dataclasses import dataclass, field

from vision_worker.config import VisionConfig
from vision_worker.local_folder import StateFolder
from vision_worker.local_postgres import Postgres
from vision_worker.local_server import Server
from vision_worker.local_valkey import Valkey


@dataclass(frozen=True)
class Urls:
    """Where the database and the broker are. Both hold passwords, so neither is in the repr."""

    db_url: str = field(repr=False)
    broker_url: str = field(repr=False)


def urls(config: VisionConfig) -> Urls:
    """Start what the settings leave to us, if it does not run, and say where everything is.

    Safe to call from any number of threads and processes. Raises LocalServerError.
    """
    db_url, broker_url = config.resolved_db_url, config.broker_url
    if not (db_url and broker_url):
        postgres, valkey = servers(config)
        db_url = db_url or _url(postgres)
        broker_url = broker_url or _url(valkey)
    return Urls(db_url, broker_url)


def stop(config: VisionConfig) -> list[str]:
    """End the servers of this state folder; the names of those that ran.

    Raises LocalServerStuck if one does not end.
    """
    return [server.name for server in servers(config) if server.stop()]


def running(config: VisionConfig) -> dict[str, bool]:
    """For ``postgres`` and ``valkey``, whether the embedded one answers. Starts nothing."""
    return {server.name: server.running for server in servers(config)}


def _url(server: Server) -> str:
    server.start()
    return server.url()


def servers(config: VisionConfig) -> tuple[Server, Server]:
    """PostgreSQL and Valkey of the state folder, to be looked at; starts nothing."""
    folder = StateFolder(config.resolved_state_dir)
    return Postgres(folder, config), Valkey(folder, config)
