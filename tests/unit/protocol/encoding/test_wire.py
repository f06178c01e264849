"""Errors on their way to a caller."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Conflict, Damaged, EmberkeepError, Fatal, InvalidInput, RetryLater, Unavailable
from emberkeep.blobs.errors import NotUploaded
from emberkeep.protocol.encoding.wire import decode_error, encode_error


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [
        (Conflict("taken", hint="another"), Conflict),
        (Unavailable("the mount is absent"), RetryLater),
        (Damaged("does not fit"), Fatal),
        (NotUploaded("not here", field="blob"), InvalidInput),
    ],
)
def test_an_error_arrives_as_what_its_caller_can_act_upon(
    raised: EmberkeepError, arrives: type[EmberkeepError]
) -> None:
    error = decode_error(encode_error(raised), sender="peer")
    assert (type(error), error.message, error.hint) == (arrives, raised.message, raised.hint)
    assert getattr(error, "field", None) == getattr(raised, "field", None)
