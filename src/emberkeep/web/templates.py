"""The template engine: it escapes every value in a page, and raises an error for an undefined name."""

from __future__ import annotations

import jinja2

import emberkeep
from emberkeep.base.configuration.option_types import priority_text
from emberkeep.web import formats
from emberkeep.web.event_texts import event_tone
from emberkeep.web.nodes import lapse
from emberkeep.web.recovery_bars import recovery_bars
from emberkeep.web.sparkline import sparkline
from emberkeep.web.tab import TONES

_STAGE_TONES = {"ACTIVE": "running", "COMPLETE": "finished", "FAILED": "failed", "SKIPPED": "cancelled"}


def make_environment() -> jinja2.Environment:
    """Return the template environment of all pages."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("emberkeep.web", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        moment=formats.moment,
        span=formats.span,
        seconds=formats.seconds,
        mebibytes=formats.mebibytes,
        byte_size=formats.byte_size,
        count=formats.count,
        backlog=formats.backlog,
        priority=priority_text,
        short_id=formats.short_id,
        capitalize_first=formats.capitalize_first,
        lapse=lapse,
        sparkline=sparkline,
        recovery_bars=recovery_bars,
        event_tone=event_tone,
        tone=TONES.__getitem__,
        ended_samples=lambda samples, status: samples if status.is_globally_terminal else samples[:-1],
        stage_tone=lambda status: _STAGE_TONES.get(status, "waiting"),
    )
    environment.globals.update(version=emberkeep.__version__, dash=formats.DASH)
    return environment
