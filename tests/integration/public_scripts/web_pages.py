"""A few pages as a crawler archives them: files in the WARC format, which the scripts of Common Crawl read."""

from __future__ import annotations

from pathlib import Path

_SERVERS = ("nginx", "Apache", "nginx", "Caddy")
_TEXTS = ("the fire dies", "the embers stay", "a fire comes back", "stay by the fire")


def write_pages(place: Path) -> None:
    """Write `pages.warc` with responses, `texts.wet` with their texts, and a list of paths for each."""
    responses, texts = [], []
    for number, (server, text) in enumerate(zip(_SERVERS, _TEXTS, strict=True)):
        address = {"WARC-Target-URI": f"https://example.org/{number}", "WARC-IP-Address": f"192.0.2.{number % 2}"}
        page = f"<html><body><h1>{text}</h1>{'<p>more</p>' * number}</body></html>"
        head = f"HTTP/1.1 200 OK\r\nServer: {server}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}"
        responses.append(
            _record("response", number, "application/http; msgtype=response", f"{head}\r\n\r\n{page}", address)
        )
        texts.append(_record("conversion", number, "text/plain", text, address))
    for name, records in (("pages.warc", responses), ("texts.wet", texts)):
        path = place / name
        path.write_bytes("".join(records).encode())
        (place / f"{name}.list").write_text(f"file:{path}\n")


def _record(kind: str, number: int, content_type: str, content: str, more: dict[str, str]) -> str:
    headers = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:00000000-0000-4000-8000-{number:012}>",
        "WARC-Date": "2026-01-01T00:00:00Z",
        **more,
        "Content-Type": content_type,
        "Content-Length": str(len(content.encode())),
    }
    return "".join(
        ("WARC/1.0\r\n", *(f"{name}: {value}\r\n" for name, value in headers.items()), "\r\n", content, "\r\n\r\n")
    )
