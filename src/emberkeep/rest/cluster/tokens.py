"""Named tokens: make, list and revoke them, and tell callers who they are."""

from __future__ import annotations

import msgspec

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Role
from emberkeep.identities.model import NamedToken, parse_namespace, parse_token_name
from emberkeep.protocol.rest_tokens import CallerInfo, NewToken, TokenCreated, TokenInfo, TokenList
from emberkeep.rest.serving.routing import CheckedRequest, Route

_SHORTEST, _LONGEST = 60_000, 3650 * 24 * 3600 * 1000  # ms
_NEVER = -1


async def caller(call: CheckedRequest) -> msgspec.Struct:
    identity = call.identity
    expires = identity.expires_ms or _NEVER
    return CallerInfo(name=identity.name, role=identity.role, namespace=identity.namespace, expires=expires)


async def tokens(call: CheckedRequest) -> msgspec.Struct:
    now = call.api.now_ms()
    return TokenList(tokens=[_info(token, now) for token in call.api.tokens.all()])


async def create(call: CheckedRequest) -> msgspec.Struct:
    body: NewToken = call.body
    if not _SHORTEST <= body.valid_for <= _LONGEST:
        raise InvalidInput(
            f"valid-for: {body.valid_for} ms is not from one minute to ten years",
            field="valid-for",
            hint="90 days are 7776000000",
        )
    if body.namespace and body.role in (Role.METRICS, Role.ADMIN):
        raise InvalidInput(
            f"namespace: the role {body.role.value} concerns the whole cluster",
            field="namespace",
            hint="leave it out, or choose the role viewer, submitter or operator",
        )
    token, text = await call.api.tokens.create(
        parse_token_name(body.name), body.role, parse_namespace(body.namespace), body.valid_for
    )
    return TokenCreated(token=text, info=_info(token, call.api.now_ms()))


async def revoke(call: CheckedRequest) -> msgspec.Struct:
    now = call.api.now_ms()
    return TokenList(tokens=[_info(token, now) for token in await call.api.tokens.revoke(call.path["tokenid"])])


def _info(token: NamedToken, now_ms: int) -> TokenInfo:
    return TokenInfo(
        id=token.id,
        name=token.name,
        role=token.role,
        namespace=token.namespace,
        state="revoked" if token.revoked_ms else "valid" if token.is_valid(now_ms) else "expired",
        created=token.created_ms,
        expires=token.expires_ms,
        revoked=token.revoked_ms or _NEVER,
    )


ROUTES = (
    Route(
        "GET",
        "/identity",
        caller,
        "Who the caller is: the holder of the request's token",
        "Tokens",
        role=Role.METRICS,
        shared=True,
        reply=CallerInfo,
    ),
    Route(
        "GET",
        "/tokens",
        tokens,
        "All named tokens, without their secrets",
        "Tokens",
        role=Role.ADMIN,
        reply=TokenList,
        problems=(503,),
        doc="Tokens that ended more than 30 days ago are forgotten when the next one is made.",
    ),
    Route(
        "POST",
        "/tokens",
        create,
        "Make a named token",
        "Tokens",
        role=Role.ADMIN,
        status=201,
        reply=TokenCreated,
        body=NewToken,
        problems=(409, 413, 415, 503, 504, 507),
        doc="Two tokens of one name can be valid at a time, so that one can replace the other without interruption. "
        "409: there are two.",
    ),
    Route(
        "DELETE",
        "/tokens/{tokenid}",
        revoke,
        "Revoke one token by its id, or all tokens of a name",
        "Tokens",
        role=Role.ADMIN,
        reply=TokenList,
        problems=(404, 409, 503, 504, 507),
        doc="The reply has those that were valid until now. They are refused at once, and sessions that began with "
        "them end. Jobs that their holders submitted continue.",
    ),
)
