"""Work for a client, for as long as the client is there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def while_present(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work, but stop once the client has gone; whether it came to its end."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
