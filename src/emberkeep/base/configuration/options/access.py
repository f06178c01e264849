"""Options of users: sign-in with OpenID Connect, quotas of namespaces, and the audit log."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import boolean, integer, named_counts, size, size_of_at_least, text
from emberkeep.base.configuration.values import Option, define

OIDC_ISSUER = define(
    Option(
        "security.oidc.issuer",
        "",
        text,
        "url",
        "Address of an OpenID Connect issuer whose tokens people and programs may use, exactly as in their claim "
        "`iss`. Empty: none.",
    )
)
OIDC_AUDIENCE = define(
    Option("security.oidc.audience", "", text, "name", "Value that the claim `aud` of the issuer's tokens must have.")
)
OIDC_ROLES = define(
    Option(
        "security.oidc.roles",
        "",
        text,
        "list",
        "Roles of token holders, separated by commas: `VALUE=ROLE` or `VALUE=ROLE@NAMESPACE`, where VALUE is one of "
        "the values of security.oidc.role-claim. If several match, the most powerful role counts.",
    )
)
OIDC_ROLE_CLAIM = define(
    Option(
        "security.oidc.role-claim",
        "groups",
        text,
        "name",
        "Claim of the issuer's tokens that security.oidc.roles refers to.",
    )
)
OIDC_NAME_CLAIM = define(
    Option(
        "security.oidc.name-claim",
        "sub",
        text,
        "name",
        "Claim with the holder's name: the issuer must not give one name to two people. `oidc:` precedes it in lists.",
    )
)
OIDC_CA = define(
    Option(
        "security.oidc.ca",
        "",
        text,
        "path",
        "PEM file with the CAs that may issue the certificate of the issuer's server. Empty: the system's CAs.",
    )
)
QUOTA_REQUESTS = define(
    Option(
        "security.quota.requests-per-second",
        200,
        integer(0, 1_000_000),
        "integer",
        "Requests per second that one identity may send to the JobManager on average, and ten times as many at once. "
        "0: no limit. The cluster's own token has no quota.",
    )
)
QUOTA_UPLOADS = define(
    Option(
        "security.quota.upload-bytes-per-second",
        0,
        size,
        "size",
        "Bytes per second that one identity may upload to the JobManager on average, and ten times as many at once. "
        "0: no limit. The cluster's own token has no quota.",
    )
)
QUOTA_JOBS = define(
    Option(
        "security.quota.jobs-per-namespace",
        0,
        integer(0, 1_000_000),
        "integer",
        "Jobs of one namespace that may wait or run at a time. Further ones are refused. 0: no limit. Jobs without a "
        "namespace have no quota.",
    )
)
QUOTA_DRIVERS = define(
    Option(
        "security.quota.drivers-per-namespace",
        0,
        integer(0, 1_000_000),
        "integer",
        "Jobs of one namespace that may run at a time, each with its driver. Further ones wait, in the order of their "
        "submission. 0: no limit. Jobs without a namespace have no quota.",
    )
)
QUOTA_SLOTS = define(
    Option(
        "security.quota.slots-per-namespace",
        0,
        integer(0, 1_000_000),
        "integer",
        "Slots that all jobs of one namespace may have at a time. A job that needs more runs with those that it gets, "
        "and waits for the others. 0: no limit. Jobs without a namespace have no quota.",
    )
)
GUARANTEED_SLOTS: Option[dict[str, int]] = define(
    Option(
        "security.quota.guaranteed-slots",
        {},
        named_counts,
        "named numbers",
        "Slots that namespaces are guaranteed, such as `team-a=4;team-b=2`. Others may use them as long as the "
        "namespace does not need them. A namespace that has fewer, and whose jobs wait, comes first when slots are "
        "free, and other jobs give slots back as `slotmanager.preemption` says. A guarantee may not be larger than "
        "`security.quota.slots-per-namespace`. Namespaces that are not named have no guarantee.",
    )
)
AUDIT_MAX_SIZE = define(
    Option(
        "security.audit.max-size",
        32 * 1024**2,
        size_of_at_least(1024),
        "size",
        "Size at which a JobManager rotates its audit log.",
    )
)
AUDIT_FILES = define(
    Option(
        "security.audit.files",
        20,
        integer(1, 1000),
        "integer",
        "Number of rotated files of the audit log that are kept. The oldest one is deleted first.",
    )
)
AUDIT_SHIP = define(
    Option(
        "security.audit.ship",
        True,
        boolean,
        "boolean",
        "Whether each JobManager also copies its audit log to `audit/` in high-availability.storageDir, so that it "
        "outlives the machine. Without that directory, nothing is copied.",
    )
)
