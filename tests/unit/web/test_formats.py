"""The examples in the functions' documentation hold."""

from __future__ import annotations

import doctest

import pytest

from emberkeep.rest import openapi
from emberkeep.rest.serving import invalid_body
from emberkeep.web import formats, page_tags
from tools import rest_reference


@pytest.mark.parametrize("module", [formats, invalid_body, openapi, page_tags, rest_reference])
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]

    assert result.attempted > 0
    assert result.failed == 0
