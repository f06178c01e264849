"""Which of a task manager's environment variables its drivers and executors inherit.

The list names what Python, Java, Spark, Hadoop and object stores read, so that a variable which only the task manager
needs does not reach jobs by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_AUTHORIZATION, ZOOKEEPER_AUTHORIZATION_FILE
from emberkeep.base.configuration.options.task_managers import JOB_ENVIRONMENT
from emberkeep.base.configuration.values import REGISTRY, Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.files.private import read_private
from emberkeep.base.processes.variable_names import matches

log = structlog.get_logger(__name__)

EVERYTHING = "*"
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_*", "XDG_*"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_*", "MALLOC_*"),
    *("JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"),
    *("SPARK_*", "PYSPARK_*", "HADOOP_*", "HDFS_*", "YARN_CONF_DIR", "HIVE_*", "KRB5*", "ARROW_*"),
    *("OMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "CUDA_*", "NVIDIA_*"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("AWS_*", "AZURE_*", "GOOGLE_*"),  # drivers read and write checkpoints and savepoints with these credentials
)
"""Names of variables; one that ends in ``*`` stands for all names with that beginning."""
_PRIVATE_PREFIX = "EMBERKEEP_"  # variables that configure this process
_SHORTEST_SECRET = 8  # characters; a shorter text also occurs in unrelated values


def inherited_environment(environ: Mapping[str, str], configuration: Configuration) -> dict[str, str]:
    """Return the variables of ``environ`` that jobs inherit.

    Leaves out variables that configure this process or hold a secret of the cluster, whatever their names.
    """
    added = tuple(name.strip() for name in configuration[JOB_ENVIRONMENT].split(",") if name.strip())
    secrets = _secrets(configuration)
    return {
        name: value
        for name, value in environ.items()
        if matches(name, (*INHERITED, *added))
        and not name.startswith(_PRIVATE_PREFIX)
        and not any(secret in value for secret in secrets)
    }


def _secrets(configuration: Configuration) -> tuple[str, ...]:
    """Return the cluster's secrets in a configuration: the whole texts, and the passwords at their ends."""
    texts = [text for key, text in configuration.texts().items() if REGISTRY[key].secret]
    path = configuration[ZOOKEEPER_AUTHORIZATION_FILE]
    if path and not configuration[ZOOKEEPER_AUTHORIZATION]:
        try:
            texts.append(read_private(Path(path), ZOOKEEPER_AUTHORIZATION_FILE.key))
        except Fatal as error:
            # Without ZooKeeper's credentials this process has not started; since then the file was removed or changed.
            log.warning("cannot look for ZooKeeper's password in the environment of jobs", reason=str(error))
    found = {part for text in texts for part in (text, text.rpartition(":")[2])}
    return tuple(secret for secret in found if len(secret) >= _SHORTEST_SECRET)
