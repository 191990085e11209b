"""A page in a real browser: what it shows of a recalled picture, and what can never run on it."""

import asyncio
import html
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image
from playwright.async_api import Page, async_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from mcp_adapters.http import create_app
from mcp_adapters.tokens import Signer
from tests.http_client import serving
from tests.pictures import encoded
from tests.support import DEADLINE, eventually
from vision_worker.config import VisionConfig
from vision_worker.front import Front
from vision_worker.types import Keepsake

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]
TOKEN = "a-long-random-text-of-the-test"
PAGE = """<!doctype html>
<title>Conversation</title>
<main></main>
<script>
  const stream = new EventSource({events});
  window.seen = 0;
  stream.onmessage = async (message) => {{
    const event = JSON.parse(message.data);
    if (event.kind === "recalled_image") {{
      const image = new Image();
      image.alt = event.about;
      image.src = await (await fetch(`/link/${{event.id}}`)).text();
      document.querySelector("main").append(image);
    }}
    window.seen += 1;
  }};
</script>
"""
SCRIPT = "new Image().src = '/ran/{name}?' + encodeURIComponent(document.URL)"
HTML_FILE = '<!doctype html><body><script>{script}</script><img src=x onerror="{script}">'
SVG_FILE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="{script}">'
    "<script>{script}</script></svg>"
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")


@dataclass
class Site:
    """Somebody's app with ours mounted; ``ran`` has the scripts that ran on its origin."""

    front: Front
    signer: Signer
    port: int = 0
    ran: set[str] = field(default_factory=set)
    control: str = ""

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def link(self, identifier: str) -> str:
        return f"/api/visual-memory/{identifier}?token={self.signer.sign(identifier)}"

    def app(self, config: VisionConfig) -> Starlette:
        async def page(_: Request) -> Response:
            events = f"/api/events/talk?token={self.signer.sign_events('talk')}"
            return HTMLResponse(PAGE.format(events=json.dumps(events)))

        async def link(request: Request) -> Response:
            return PlainTextResponse(self.link(request.path_params["id"]))

        async def ran(request: Request) -> Response:
            self.ran.add(request.path_params["name"])
            return Response(status_code=204)

        async def control(_: Request) -> Response:
            return HTMLResponse(self.control)

        async def frames(request: Request) -> Response:
            target = html.escape(self.link(request.path_params["id"]))
            return HTMLResponse(
                f'<img src="{target}"><iframe src="{target}"></iframe><embed src="{target}">'
                f'<object data="{target}"></object><script src="{target}"></script>'
            )

        routes = [
            Route("/", page),
            Route("/link/{id}", link),
            Route("/ran/{name}", ran),
            Route("/control", control),
            Route("/frames/{id}", frames),
            Mount("/", create_app(config, front=self.front)),
        ]
        return Starlette(routes=routes)


@pytest.fixture
async def site(config: VisionConfig, front: Front) -> AsyncIterator[Site]:
    config.http_token = TOKEN
    site = Site(front, Signer(TOKEN))
    async with serving(site.app(config)) as site.port:
        yield site


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=CHROMIUM, headless=True, args=FLAGS
        )
        context.set_default_timeout(DEADLINE * 1000)
        yield await context.new_page()
        await context.close()


async def keep(front: Front, about: str, colour: str) -> Keepsake:
    picture = encoded(Image.new("RGB", (32, 16), colour), "PNG")
    return (await front.keepsakes.remember(about, picture, source="camera roll")).keepsake


async def recall(front: Front, keepsake: Keepsake) -> None:
    event = {"kind": "recalled_image", "id": keepsake.id, "about": keepsake.about}
    await front.events.emit("talk", event)


async def images(page: Page) -> list[list[object]]:
    """Alternative text and width of what is shown, once it has been loaded."""
    await page.wait_for_function("Array.from(document.images).every((image) => image.complete)")
    found: list[list[object]] = await page.evaluate(
        "Array.from(document.images, (image) => [image.alt, image.naturalWidth])"
    )
    return found


async def test_a_recalled_picture_appears_with_its_name(site: Site, page: Page) -> None:
    early = await keep(site.front, "Zoë 猫", "green")
    await recall(site.front, early)
    await page.goto(site.url())
    await page.wait_for_selector("img")
    late = await keep(site.front, '<script>alert(1)</script> "x" & y', "red")
    await recall(site.front, late)
    await page.wait_for_selector("img:nth-of-type(2)")
    assert await images(page) == [[early.about, 32], [late.about, 32]]


async def test_a_viewer_that_was_cut_off_gets_what_it_missed_once(
    site: Site, page: Page, config: VisionConfig
) -> None:
    first, second = (
        await keep(site.front, "first", "green"),
        await keep(site.front, "second", "red"),
    )
    await recall(site.front, first)
    async with serving(site.app(config)) as site.port:
        await page.goto(site.url())
        await page.wait_for_selector("img")
    await recall(site.front, second)
    async with serving(site.app(config), at=site.port):
        await page.wait_for_selector("img:nth-of-type(2)")
        assert await images(page) == [["first", 32], ["second", 32]]


async def test_nothing_appears_at_a_miss(site: Site, page: Page) -> None:
    other = await keep(site.front, "other", "blue")
    await page.goto(site.url())
    await site.front.events.emit("another talk", {"kind": "recalled_image", "id": other.id})
    await site.front.events.emit("talk", {"kind": "something else"})
    await page.wait_for_function("window.seen === 1")
    assert await images(page) == []


async def test_a_picture_that_is_gone_leaves_its_name(site: Site, page: Page) -> None:
    gone = await keep(site.front, "gone", "blue")
    await site.front.keepsakes.forget(gone.id)
    await recall(site.front, gone)
    await page.goto(site.url())
    await page.wait_for_selector("img", state="attached")
    assert await images(page) == [["gone", 0]]


@pytest.mark.parametrize("mime_type", ["image/svg+xml", "text/html", "image/png", "image/tiff"])
@pytest.mark.parametrize("suffix", ["svg", "html"])
async def test_a_stored_file_never_runs_a_script(
    site: Site, page: Page, suffix: str, mime_type: str
) -> None:
    template = SVG_FILE if suffix == "svg" else HTML_FILE
    keepsake = await keep(site.front, "odd", "blue")
    odd = Path(keepsake.file_path).with_suffix(f".{suffix}")
    odd.write_text(template.format(script=SCRIPT.format(name="stored")))
    await site.front.database.fetch(
        "UPDATE memories_image SET file_path = $2, mime_type = $3 WHERE id = $1::text::uuid",
        keepsake.image_id,
        str(odd),
        mime_type,
    )
    await page.goto(site.url(f"/frames/{keepsake.id}"))
    await visit(page, site.url(site.link(keepsake.id)))
    # The same as a page of the origin's own does run, so that the others had their time.
    site.control = HTML_FILE.format(script=SCRIPT.format(name="control"))
    await page.goto(site.url("/control"))

    async def ran() -> bool:
        return "control" in site.ran

    await eventually(ran, "the page that may run scripts")
    assert site.ran == {"control"}


async def visit(page: Page, url: str) -> None:
    """Open it as a page; it may turn out to be a download instead."""
    opened = asyncio.create_task(page.wait_for_event("load"))
    download = asyncio.create_task(page.wait_for_event("download"))
    await page.evaluate("(url) => { location.href = url }", url)
    _, other = await asyncio.wait({opened, download}, return_when=asyncio.FIRST_COMPLETED)
    for task in other:
        task.cancel()
    await asyncio.gather(*other, return_exceptions=True)
