"""What went wrong, as HTTP says it: application/problem+json with our stable codes."""

from http import HTTPStatus

from starlette.responses import JSONResponse


def problem(status: int, code: str, detail: str) -> JSONResponse:
    """A problem document; it is never cached."""
    return JSONResponse(
        {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "code": code,
            "detail": detail,
        },
        status,
        {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        "application/problem+json",
    )
