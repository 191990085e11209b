"""The state folder of the embedded servers: who owns it, its lock, its password, its sockets."""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vision_worker.errors import LocalServerError
from vision_worker.local_account import account

LOCK_SECONDS = 120.0
POLL_SECONDS = 0.01
SOCKET_PATH_BYTES = 103
"""What every system takes for a unix socket; Linux alone would take 107."""
SOCKET_NAME_BYTES = len("/.s.PGSQL.5432")


class StateFolder:
    """One folder with the data, sockets, logs and password of one user's servers."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.account = account(self.path)

    @property
    def sockets(self) -> Path:
        """Folder of the unix sockets: in the state folder, or a short one where that is too deep
        or has a comma, which would end the path in a connection URL."""
        inside = self.path / "run"
        length = len(os.fsencode(inside)) + SOCKET_NAME_BYTES
        if length <= SOCKET_PATH_BYTES and "," not in str(inside):
            return inside
        identity = os.fsencode(f"{self.account.uid}:{self.path}")
        named = hashlib.sha256(identity).hexdigest()[:16]
        return Path("/tmp").resolve() / f"vision-worker-{named}"

    @property
    def trusted(self) -> bool:
        """Whether the folder and its sockets are there and no one else can have put them there."""
        return self._is_private(self.path) and self._is_private(self.sockets)

    def make(self) -> None:
        """Make the folder, or see that it is fit. Raises LocalServerError or OSError."""
        missing = [parent for parent in self.path.parents if not parent.exists()]
        self._check_reach([*self.path.parents, self.path][len(missing)])
        for parent in reversed(missing):
            with contextlib.suppress(FileExistsError):
                parent.mkdir()
                if self.account.steps_down:
                    parent.chmod(0o755)
        self.claim(self.path)
        self.claim(self.sockets)

    def claim(self, folder: Path) -> None:
        """Make a folder that belongs to the account alone, or see that it does.

        One that holds anything of somebody else's is left as it is: LocalServerError.
        """
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if self._is_private(folder):
            return
        owner = folder.lstat().st_uid
        if owner not in (self.account.uid, os.geteuid()):
            problem = f"{folder} belongs to another user"
        elif not folder.is_dir() or folder.is_symlink():
            problem = f"{folder} is not a folder"
        elif any(folder.iterdir()) and not (folder / "start.lock").exists():
            problem = f"{folder} is not private and has other things in it"
        else:
            os.chown(folder, self.account.uid, self.account.gid)
            folder.chmod(0o700)
            return
        raise LocalServerError(
            server="servers",
            reason=f"{problem}. Set MEMINI_IMAGE_STATE_DIR to a folder for them alone",
        )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Held by one process or thread at a time, and let go when it dies."""
        handle = self.open_lock("start.lock")
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while not try_lock(handle):
                if time.monotonic() > deadline:
                    raise LocalServerError(
                        server="servers",
                        reason=f"another process has held {self.path / 'start.lock'} "
                        f"for {LOCK_SECONDS:g} seconds",
                    )
                time.sleep(POLL_SECONDS)
            yield
        finally:
            os.close(handle)

    def open_lock(self, name: str) -> int:
        return os.open(
            self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )

    @property
    def password_file(self) -> Path:
        return self.path / "password"

    def password(self) -> str:
        """32 hexadecimal digits."""
        return self.password_file.read_text()

    def make_password(self) -> None:
        """With the lock held, before there is any data."""
        self.write(self.password_file, secrets.token_hex(16), uid=os.geteuid())

    def write(self, path: Path, text: str, *, uid: int) -> None:
        """Write a file of mode 0600, whole or not at all."""
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            os.fchown(handle, uid, -1)
            file.write(os.fsencode(text))
            file.flush()
            os.fsync(handle)
        self.rename(fresh, path)

    def rename(self, fresh: Path, path: Path) -> None:
        """Give something in the state folder its name, for good once this returns."""
        fresh.rename(path)
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def reachable(self, site: Path, parts: Sequence[str], program: str) -> Path:
        """The path of ``site/program``, or of a copy if the account cannot run it where it is.

        The copy holds ``parts`` of ``site`` at the same depth, since programs find their
        libraries from where they lie. It is made anew when the program has changed.
        """
        if self.account.can_run(site / program):
            return site / program
        copy = self.path / "programs" / Path(program).name
        source = (site / program).stat()
        mark = f"{site} {source.st_size} {source.st_mtime_ns}"
        stamp = copy / "copied-from"
        if not stamp.exists() or stamp.read_text() != mark:
            self.claim(copy.parent)
            fresh = copy.with_name(copy.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            for part in parts:
                if (site / part).exists():
                    shutil.copytree(site / part, fresh / part, symlinks=True)
            (fresh / stamp.name).write_text(mark)
            for path in (fresh, *fresh.rglob("*")):
                os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)
            shutil.rmtree(copy, ignore_errors=True)
            fresh.rename(copy)
        return copy / program

    def _is_private(self, folder: Path) -> bool:
        try:
            info = folder.lstat()
        except OSError:
            return False
        mine = info.st_uid == self.account.uid
        return mine and stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) == 0o700

    def _check_reach(self, parent: Path) -> None:
        if not self.account.steps_down or not parent.is_dir():
            return
        if self.account.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", str(parent)]).returncode != 0:
            raise LocalServerError(
                server="servers",
                reason=f"they run as the user {self.account.name}, since root may not run them, "
                f"and that user cannot reach {parent}. Set MEMINI_IMAGE_STATE_DIR to a folder "
                "which that user can reach",
            )


def try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
