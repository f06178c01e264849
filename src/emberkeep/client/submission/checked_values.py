"""Settings that Spark or the driver would refuse only once the driver has started."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.configuration.option_words import UnreadableWords, split_words
from emberkeep.base.errors import InvalidInput

_COORDINATES = {
    "spark.jars.packages": ("group:artifact:version", "org.apache.spark:spark-avro_2.13:4.3.0"),
    "spark.jars.excludes": ("group:artifact", "org.slf4j:slf4j-api"),
}
_JAVA_OPTIONS = [
    f"spark.{process}.{kind}JavaOptions" for process in ("driver", "executor") for kind in ("default", "extra")
]


def check_values(conf: Mapping[str, str]) -> None:
    """Raise InvalidInput, naming the setting, for Maven coordinates and Java options that cannot be read."""
    for key, (form, example) in _COORDINATES.items():
        for each in conf.get(key, "").split(","):
            parts = each.replace("/", ":").split(":")
            if each.strip() and not (len(parts) == form.count(":") + 1 and all(part.strip() for part in parts)):
                raise InvalidInput(f"{key}: {each[:200]!r} is not {form}", field=key, hint=f"for example {example}")
    for key in _JAVA_OPTIONS:
        _check_java_options(key, conf.get(key, ""))


def _check_java_options(key: str, text: str) -> None:
    try:
        words = split_words(text, bare_escapes=key.startswith("spark.driver."))
    except UnreadableWords as error:
        raise InvalidInput(
            f"{key}={text[:200]!r} cannot be split into words: {error}", field=key, hint=error.hint
        ) from None
    if any(word.startswith("-Xmx") for word in words):
        memory = f"spark.{key.split('.')[1]}.memory"
        raise InvalidInput(f"{key} must not set -Xmx ({text[:200]})", field=key, hint=f"use {memory} instead")
