"""``vision-worker serve``: the app on a server of its own."""

import signal
import socket
import sys

import uvicorn

from mcp_adapters.gate import is_loopback
from mcp_adapters.http import create_app
from vision_worker.config import VisionConfig
from vision_worker.errors import ConfigError


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams of events never end by themselves, and the server waits for what is open.
        await self.config.app.state.end_streams()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def serve(config: VisionConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError where others could come in unasked."""
    if config.http_token is None and not is_loopback(config.http_host):
        problem = (
            f"it is not set, and {config.http_host} can be reached from other machines. Set it to"
            " a long random text, or serve at 127.0.0.1"
        )
        raise ConfigError(variable="MEMINI_IMAGE_HTTP_TOKEN", problem=problem)
    # The server hands the signal on once it has come to its end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    options = uvicorn.Config(
        create_app(config),
        host=config.http_host,
        port=config.http_port,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=10,
    )
    _Server(options).run()
