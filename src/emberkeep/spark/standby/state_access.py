"""How a JVM that is being warmed reaches the state gateway of its warm-up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import OWN, gateway_address
from emberkeep.protocol.encoding.hadoop_token import ENCRYPTED_KIND, KIND, with_credential
from emberkeep.spark.jvm.state_gateway_conf import GATEWAY_VARIABLE, TRUST_VARIABLE, HadoopSite, gateway_settings

_FROM_ENVIRONMENT = re.compile(r"\$\{env\.(\w+):-[^}]*\}")


@dataclass(frozen=True)
class StateAccess:
    """The gateway at ``address`` (host:port) for a job. ``truststore``: file; None if the gateway does not encrypt.

    Executors and drivers of jobs find address, truststore and credential in their environment. That of a running JVM
    belongs to the job that will take it, so here they are part of the settings and of Hadoop's user.
    """

    address: str
    truststore: Path | None
    job_id: JobId
    credential: str

    @property
    def uri(self) -> str:
        """The directory of the job's checkpoints."""
        return f"{gateway_address(encrypts=self.truststore is not None)}/{self.job_id}/{OWN}"

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark with which Hadoop's client finds the gateway."""
        environ = {GATEWAY_VARIABLE: self.address, TRUST_VARIABLE: str(self.truststore or "")}
        settings = gateway_settings({}, HadoopSite(), encrypts=self.truststore is not None)
        return {key: _FROM_ENVIRONMENT.sub(lambda found: environ[found[1]], value) for key, value in settings.items()}

    def log_in(self, jvm: Any) -> None:
        """Give Hadoop's user in the JVM the credential, as a token. ``reset_login`` takes it away again."""
        security = jvm.org.apache.hadoop.security
        user = security.UserGroupInformation.getCurrentUser()
        for text in with_credential("", self.credential, ENCRYPTED_KIND if self.truststore else KIND).split(","):
            token = security.token.Token()
            token.decodeFromUrlString(text)
            user.addToken(token)
