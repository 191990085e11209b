"""Under whom the embedded servers run, and how something is run as that user."""

import contextlib
import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vision_worker.errors import LocalServerError

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True)
class Account:
    """The user under whom the servers run: root steps down, anyone else is that user."""

    uid: int
    gid: int
    name: str

    @property
    def steps_down(self) -> bool:
        return self.uid != os.geteuid()

    @property
    def options(self) -> dict[str, Any]:
        """What subprocess needs to run something as this account, apart from its caller."""
        apart: dict[str, Any] = {
            "cwd": "/",
            "env": ENVIRONMENT,
            "start_new_session": True,
            "umask": 0o077,
        }
        if self.steps_down:
            apart |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return apart

    def can_run(self, program: Path) -> bool:
        try:
            return self.run([str(program), "--version"]).returncode == 0
        except OSError:
            return False

    def run(
        self, command: Sequence[str], *, text: str = "", pass_fds: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run something short as the account; ``stdout`` has all that it said."""
        return subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=pass_fds,
            **self.options,
        )


def account(folder: Path) -> Account:
    """Who runs what keeps its data in this folder, which need not exist.

    Raises LocalServerError for root on a system with neither a postgres nor a nobody user.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), f"with the id {os.geteuid()}")
    accounts = []
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            accounts.append(Account(entry.pw_uid, entry.pw_gid, name))
    if not accounts:
        raise LocalServerError(
            server="servers",
            reason="root may not run them, and there is no user postgres or nobody",
        )
    # A postgres user that came to the system later does not take over what nobody has begun.
    owner = folder.stat().st_uid if folder.exists() else None
    return next((each for each in accounts if each.uid == owner), accounts[0])
