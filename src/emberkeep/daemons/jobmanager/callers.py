"""Who may call a JobManager besides holders of the cluster's token: named tokens, and those of an issuer."""

from __future__ import annotations

from emberkeep.adapters.oidc.callers import OidcCallers
from emberkeep.adapters.oidc.issuer_keys import IssuerKeys
from emberkeep.base.clock import Clock
from emberkeep.base.configuration.options.access import (
    OIDC_AUDIENCE,
    OIDC_CA,
    OIDC_ISSUER,
    OIDC_NAME_CLAIM,
    OIDC_ROLE_CLAIM,
    OIDC_ROLES,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Identity
from emberkeep.base.tls.contexts import outside_context
from emberkeep.daemons.process_main import Services
from emberkeep.identities.oidc import ClaimRules, parse_role_rules
from emberkeep.jobmanager.named_tokens import TokenRegistry


class Callers:
    """Recognises a caller by its token, which any of the issuers may have issued."""

    def __init__(self, configuration: Configuration, named: TokenRegistry, clock: Clock) -> None:
        """Raises InvalidInput (the settings of the issuer)."""
        self._named = named
        self._keys = _issuer_keys(configuration)
        self._oidc = None if self._keys is None else _callers(configuration, self._keys, clock)

    def start(self, services: Services) -> None:
        """Keep the named tokens and the keys of the issuer up to date from now on."""
        services.start("named tokens", self._named.run())
        if self._keys is not None:
            services.start("keys of the OpenID Connect issuer", self._keys.run())

    def identify(self, credential: str) -> Identity | str:
        """Return the token's holder, or the reason why the token is refused; "" if the token is unknown.

        Raises RetryLater while that cannot be decided.
        """
        found = self._named.identify(credential)
        return self._oidc.identify(credential) if found == "" and self._oidc is not None else found

    def is_current(self, identity: Identity) -> bool:
        """True if the identity may still use its sessions in a browser."""
        if identity.expires_ms:
            return self._oidc is not None and self._oidc.is_current(identity)
        return self._named.is_current(identity)


def _issuer_keys(configuration: Configuration) -> IssuerKeys | None:
    issuer, ca = configuration[OIDC_ISSUER], configuration[OIDC_CA]
    if not issuer:
        return None
    return IssuerKeys(issuer, outside_context(ca, OIDC_CA.key))


def _callers(configuration: Configuration, keys: IssuerKeys, clock: Clock) -> OidcCallers:
    rules = parse_role_rules(configuration[OIDC_ROLES])
    for option, given in ((OIDC_AUDIENCE, configuration[OIDC_AUDIENCE]), (OIDC_ROLES, rules)):
        if not given:
            raise InvalidInput(
                f"{option.key} is empty, and {OIDC_ISSUER.key} is set", field=option.key, hint=f"set {option.key}"
            )
    claims = ClaimRules(configuration[OIDC_NAME_CLAIM], configuration[OIDC_ROLE_CLAIM], rules)
    return OidcCallers(keys, configuration[OIDC_ISSUER], configuration[OIDC_AUDIENCE], claims, clock.now_ms)
