"""What Airflow reads about this provider: the connection type with its form, the operator's link."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

_DISTRIBUTION = "emberkeep-airflow"
_TEXT = {"type": ["string", "null"]}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description, in the form that Airflow's schema prescribes."""
    return {
        "package-name": _DISTRIBUTION,
        "name": "Emberkeep",
        "description": "Runs PySpark jobs on an Emberkeep cluster.",
        "versions": [version(_DISTRIBUTION)],
        "hooks": [{"integration-name": "Emberkeep", "python-modules": ["emberkeep_airflow.hook"]}],
        "operators": [{"integration-name": "Emberkeep", "python-modules": ["emberkeep_airflow.operator"]}],
        "sensors": [{"integration-name": "Emberkeep", "python-modules": ["emberkeep_airflow.sensor"]}],
        "triggers": [{"integration-name": "Emberkeep", "python-modules": ["emberkeep_airflow.triggers"]}],
        "extra-links": ["emberkeep_airflow.operator.EmberkeepJobLink"],
        "connection-types": [
            {
                "hook-class-name": "emberkeep_airflow.hook.EmberkeepHook",
                "hook-name": "Emberkeep",
                "connection-type": "emberkeep",
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "extra"],
                    "relabeling": {"host": "JobManager", "schema": "Scheme", "password": "Token"},
                    "placeholders": {
                        "host": "jobmanager.example.org",
                        "port": "8081",
                        "schema": "https",
                        "password": "the token of a submitter: `emberkeep token create`",
                    },
                },
                "conn-fields": {
                    "ca": {
                        "label": "CA file",
                        "description": "File with the CAs that certify the cluster. Default: those of the system.",
                        "schema": _TEXT,
                    },
                    "others": {
                        "label": "Other JobManagers",
                        "description": "Their URLs, separated by commas. They are used when the first is unreachable.",
                        "schema": _TEXT,
                    },
                    "namespace": {
                        "label": "Namespace",
                        "description": "Namespace of the jobs. Default: that of the token.",
                        "schema": _TEXT,
                    },
                    "deployment": {
                        "label": "Deployment",
                        "description": "Name of this Airflow deployment. Give each a name of its own if several "
                        "with the same DAGs use one cluster.",
                        "schema": _TEXT,
                    },
                    "console": {
                        "label": "Console URL",
                        "description": "Where browsers find the cluster's console. Default: the JobManager's URL.",
                        "schema": _TEXT,
                    },
                    "insecure_network": {
                        "label": "Send the token unencrypted",
                        "description": "Permit http:// to another machine.",
                        "schema": {"type": ["boolean", "null"], "default": False},
                    },
                },
            }
        ],
    }
