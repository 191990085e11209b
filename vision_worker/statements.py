"""The SQL, by name: every statement of the library stands in ``statements.sql``."""

import re
from functools import cache
from importlib.resources import files


@cache
def _blocks() -> dict[str, str]:
    text = files("vision_worker").joinpath("statements.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def statement(name: str) -> str:
    """The statement of that name, with each ``{fragment}`` replaced by the block of that name."""
    block = _blocks()[name].strip()
    return re.sub(r"\{(\w+)\}", lambda match: statement(match[1]), block)
