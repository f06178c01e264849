"""What a page of a Spark UI becomes below a ticket: its headers, and where its redirects lead. Pure.

The pages are made by the JVMs of jobs, so they are hostile. They have an origin of their own, the port. Below it, the
policy lets a page load and call only what is below its own ticket, and open no window: so it cannot reach the UI of
another job that the same person has open.
"""

from __future__ import annotations

from http import HTTPStatus

_STATIC_SECONDS = 3600
_FOREIGN = "allow-same-origin allow-scripts allow-forms allow-downloads allow-modals"  # no pop-ups, no other frames


def page_headers(origin: str, base: str, path: str) -> dict[str, str]:
    """Return the headers of a page.

    ``origin``: scheme, host and port as the browser names them. ``base``: path of the ticket. ``path``: below it.
    """
    # A policy has no notation for addresses of IPv6. Spark's pages have scripts in them, and make functions from text.
    own = "'self'" if "[" in origin else f"{origin}{base}/"
    policy = (
        f"default-src 'none'; script-src {own} 'unsafe-inline' 'unsafe-eval'; style-src {own} 'unsafe-inline'; "
        f"img-src {own} data:; font-src {own} data:; connect-src {own}; form-action {own}; "
        f"base-uri 'none'; frame-ancestors 'none'; sandbox {_FOREIGN}"
    )
    kept = path.startswith("/static/")
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",  # the path has the ticket
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": f"private, max-age={_STATIC_SECONDS}" if kept else "no-store",
    }


def below(base: str, location: str) -> str:
    """Return where a redirect leads. ``location``: a path of the UI, with ``base`` or without it; "": none."""
    if not location or location == base or location.startswith(f"{base}/"):
        return location
    return f"{base}{location}"


def shown_status(status: int) -> int:
    """Return the status that the browser gets; a bad gateway if the JVM has sent none that a page may have."""
    return status if HTTPStatus.OK <= status <= 599 else HTTPStatus.BAD_GATEWAY
