"""Signed links: short-lived tokens for what cannot send a header, like an ``<img>``."""

import base64
import hmac
import json
import re
import time
from typing import Literal

from vision_worker.errors import InvalidArgument

LONGEST_SECONDS = 24 * 3600
FORMAT = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{43}", re.ASCII)

Verdict = Literal["right", "expired", "wrong"]


class Signer:
    """Makes and checks tokens that open one picture, or one stream, for a while.

    They are signed with a key made from ``HTTP_TOKEN``: whoever has it can sign, and changing it
    voids every token.
    """

    def __init__(self, secret: str, *, namespace: str = "default") -> None:
        self._key = hmac.digest(secret.encode(), b"vision-worker signed links", "sha256")
        self._namespace = namespace

    def sign(self, identifier: str, ttl: float = 300.0) -> str:
        """A token for the picture of that keepsake, good for ``ttl`` seconds, a day at most.

        Raises InvalidArgument.
        """
        return self._sign(f"/visual-memory/{identifier}", ttl)

    def sign_events(self, conversation: str, ttl: float = 300.0) -> str:
        """A token for the events of that conversation. A stream that is open outlives it.

        Raises InvalidArgument.
        """
        return self._sign(f"/events/{conversation}", ttl)

    def verify(self, path: str, token: str) -> Verdict:
        """What a token is worth at that path below ``/api``."""
        found = FORMAT.fullmatch(token)
        if not found:
            return "wrong"
        expiry = int(found[1])
        if not hmac.compare_digest(self._token(path, expiry), token):
            return "wrong"
        return "right" if time.time() < expiry else "expired"

    def _sign(self, path: str, ttl: float) -> str:
        if not ttl <= LONGEST_SECONDS:
            problem = f"it must be at most {LONGEST_SECONDS} seconds"
            raise InvalidArgument(name="ttl", problem=problem)
        return self._token(path, max(0, int(time.time() + ttl)))

    def _token(self, path: str, expiry: int) -> str:
        message = json.dumps([self._namespace, path, expiry], separators=(",", ":")).encode()
        signature = base64.urlsafe_b64encode(hmac.digest(self._key, message, "sha256"))
        return f"{expiry}.{signature.decode().rstrip('=')}"
