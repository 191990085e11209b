"""One embedded server: started by the first comer, shared by all, never judged by a pid file."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import ClassVar

from vision_worker.config import VisionConfig
from vision_worker.errors import LocalServerError, LocalServerStuck
from vision_worker.local_folder import POLL_SECONDS, StateFolder, try_lock

ANSWER_SECONDS = 1.0
START_SECONDS = 60.0
LAG_SECONDS = 2.0
STOP_SECONDS = 60.0
LOG_BYTES = 1024 * 1024
LOG_TAIL_BYTES = 64 * 1024


class Answer(Enum):
    """What a server's socket says."""

    READY = "ready"
    BUSY = "busy"
    ABSENT = "absent"


class Server(ABC):
    """What PostgreSQL and Valkey have in common.

    A server inherits one locked file, the lifeline. So as long as any of its processes lives the
    lifeline is taken, whichever process started it and in whichever container, and it is free as
    soon as the last one is gone, however that came about.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    may_lag: ClassVar[bool] = False
    """Whether its callers can go on although it is there and does not answer."""

    def __init__(self, folder: StateFolder, config: VisionConfig) -> None:
        self.folder = folder
        self.config = config

    @property
    def log(self) -> Path:
        return self.folder.path / f"{self.name}.log"

    @property
    @abstractmethod
    def data(self) -> Path:
        """The folder of its data, there as soon as it has been started once."""

    @property
    @abstractmethod
    def address(self) -> Path:
        """The unix socket that it listens on."""

    @property
    @abstractmethod
    def pid_file(self) -> Path:
        """The file that it writes its process id to."""

    @property
    @abstractmethod
    def mark(self) -> Path:
        """The argument that tells its command line from any other."""

    @abstractmethod
    def greet(self, connection: socket.socket) -> bool:
        """Say hello and read the answer: whether it can be used now."""

    @abstractmethod
    def prepare(self, lifeline: int) -> Sequence[str]:
        """Make the data if there is none, clear what a dead server left, return the command.

        Programs that it runs are given the lifeline, so that a killed caller's are waited for.
        """

    @abstractmethod
    def url(self) -> str:
        """What clients connect to; only after ``start``."""

    def failure(self, reason: str) -> LocalServerError:
        return LocalServerError(server=self.title, reason=reason)

    @property
    def running(self) -> bool:
        """Whether it can be used now; asks the server itself."""
        return self.answer is Answer.READY

    @property
    def answer(self) -> Answer:
        """What it says now, ABSENT where it has never been started."""
        known = self.folder.trusted and self.folder.password_file.exists()
        return self._answer() if known else Answer.ABSENT

    def start(self) -> None:
        """Returns when it can be used. Raises LocalServerError."""
        try:
            if not self.running:
                self.folder.make()
                with self.folder.lock():
                    self._start()
            self._shorten_log()
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise self.failure(f"{error.strerror or error}{where}") from error

    def stop(self) -> bool:
        """Whether there was one to stop. Raises LocalServerStuck if it does not end."""
        if not self.folder.trusted:
            return False
        with self.folder.lock():
            pid = self._process()
            if pid is None:
                return False
            os.kill(pid, self.stop_signal)
            deadline = time.monotonic() + STOP_SECONDS
            while (lifeline := self._take_lifeline()) is None:
                if time.monotonic() > deadline:
                    raise LocalServerStuck(server=self.title, pid=pid, seconds=f"{STOP_SECONDS:g}")
                time.sleep(POLL_SECONDS)
            os.close(lifeline)
        return True

    def _start(self) -> None:
        if not self.folder.password_file.exists():
            if self.data.exists():
                raise self.failure(
                    f"{self.folder.password_file} is gone, and its data in {self.data} cannot be "
                    "used without. Put the file back, or run 'vision-worker down' and move "
                    "the data away to begin anew"
                )
            self.folder.make_password()
        begun = time.monotonic()
        deadline = begun + START_SECONDS
        log_start: int | None = None
        if self._answer() is Answer.ABSENT and (pid := self._process()) is not None:
            # It lives on without its socket, which something has cleaned away.
            os.kill(pid, self.stop_signal)
        while (answer := self._answer()) is not Answer.READY:
            if answer is Answer.ABSENT and (lifeline := self._take_lifeline()) is not None:
                try:
                    if log_start is not None:
                        raise self.failure(f"it ended at once, saying: {self._said(log_start)}")
                    command = self.prepare(lifeline)
                    log_start = self.log.stat().st_size if self.log.exists() else 0
                    self._spawn(command, lifeline)
                finally:
                    os.close(lifeline)
            if (
                self.may_lag
                and answer is not Answer.ABSENT
                and time.monotonic() > begun + LAG_SECONDS
            ):
                return
            if time.monotonic() > deadline:
                raise self.failure(
                    f"it was not ready within {START_SECONDS:g} seconds. It may be recovering "
                    f"after a crash: try again, or look into {self.log}"
                )
            time.sleep(POLL_SECONDS)

    def _answer(self) -> Answer:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(str(self.address))
            except (FileNotFoundError, ConnectionRefusedError, PermissionError):
                return Answer.ABSENT
            except OSError:
                return Answer.BUSY
            try:
                return Answer.READY if self.greet(connection) else Answer.BUSY
            except OSError:
                return Answer.BUSY

    def _take_lifeline(self) -> int | None:
        """The lifeline, locked, to be closed; None while anything of the server lives."""
        handle = self.folder.open_lock(f"{self.name}.lock")
        if try_lock(handle):
            return handle
        os.close(handle)
        return None

    def _process(self) -> int | None:
        """The id of the living server process, if this system can see it."""
        try:
            pid = int(self.pid_file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if os.fsencode(self.mark) in _command_line(pid) else None

    def _spawn(self, command: Sequence[str], lifeline: int) -> None:
        # Through a shell that ends at once, so that the server is nobody's child: a caller that
        # lives longer than the server would otherwise keep it as a zombie.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" </dev/null >>"$0" 2>&1 &', str(self.log), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[lifeline],
            check=True,
            **self.folder.account.options,
        )

    def _said(self, start: int) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(start)
            lines = file.read()[-LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
            return last_lines(lines)
        return "nothing"

    def _shorten_log(self) -> None:
        """Keep the end of a log that has grown; the server appends, so it goes on after that."""
        if not self.log.exists() or self.log.stat().st_size <= LOG_BYTES:
            return
        handle = os.open(self.log, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            file.seek(-LOG_TAIL_BYTES, os.SEEK_END)
            tail = file.read()
            file.truncate(0)
            file.write(tail)


def last_lines(lines: Sequence[str], count: int = 5) -> str:
    return " | ".join(line.strip() for line in lines[-count:] if line.strip()) or "nothing"


def _command_line(pid: int) -> bytes:
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
    )
    return listed.stdout
