"""Configuration: one registry of options, and an immutable set of values, each with its origin.

Keys are flat and dotted; where Flink has the option, it has Flink's name. Later sources win: file < environment < ``-D
key=value``. An unknown key is an error that suggests the nearest known one. ``sources`` reads files and the
environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from emberkeep.base.configuration.option_types import TooLong
from emberkeep.base.errors import InvalidInput

T = TypeVar("T")


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option.

    ``parse`` takes text and raises ValueError with a sentence that states what is expected. ``caution`` returns what
    speaks against a value that is valid; "" if nothing does.
    """

    key: str
    default: T
    parse: Callable[[str], T]
    kind: str  # for the reference page: "duration", "size", "integer", …
    doc: str
    deprecated_keys: tuple[str, ...] = ()
    secret: bool = False  # shown as ****** by `config show`
    caution: Callable[[T], str] = lambda _: ""

    def parse_text(self, text: str) -> T:
        return self.parse(text)

    def parse_recorded(self, text: str) -> T:
        """Return the value of a text that an earlier release has accepted. Raises ValueError."""
        try:
            return self.parse(text)
        except TooLong as error:
            return self.parse(error.longest)


REGISTRY: dict[str, Option[Any]] = {}


def define(option: Option[T]) -> Option[T]:
    """Add an option to the registry, when the module that declares it is imported."""
    for key in (option.key, *option.deprecated_keys):
        if key in REGISTRY:
            raise ValueError(f"option {key} is declared twice")
        REGISTRY[key] = option
    return option


@dataclass(frozen=True)
class Setting:
    """One value, the text that it was parsed from, and its origin (a file's path and line, "environment …", "-D").

    ``key``: the key that set it, which may be a deprecated key of the option.
    """

    value: Any
    text: str
    origin: str
    key: str


@dataclass(frozen=True)
class Configuration:
    """Values of all options. Look up a value with ``configuration[OPTION]``."""

    settings: Mapping[str, Setting] = field(default_factory=dict)

    def __getitem__(self, option: Option[T]) -> T:
        setting = self.settings.get(option.key)
        return option.default if setting is None else setting.value

    def origin(self, option: Option[Any]) -> str:
        setting = self.settings.get(option.key)
        return "default" if setting is None else setting.origin

    def warnings(self) -> tuple[str, ...]:
        """Return one line for each value that was set with a deprecated key, or against which something speaks."""
        found = []
        for key, setting in sorted(self.settings.items()):
            if setting.key != key:
                found.append(f"{setting.key} is deprecated: set {key} ({setting.text})")
            if caution := REGISTRY[key].caution(setting.value):
                found.append(f"{key}: {setting.text} {caution}")
        return tuple(found)

    def with_texts(self, texts: Mapping[str, str], origin: str) -> Configuration:
        """Return a configuration in which ``texts`` override the current values.

        Raises InvalidInput naming the key, where it was set, and what was expected or which known key is nearest.
        """
        return self._with(texts, origin, Option.parse_text)

    def with_recorded(self, texts: Mapping[str, str], origin: str) -> Configuration:
        """Return what ``with_texts`` returns, for options of a job that an earlier release may have accepted.

        Earlier releases took durations of any length. One that is too long counts as the longest.
        """
        return self._with(texts, origin, Option.parse_recorded)

    def _with(self, texts: Mapping[str, str], origin: str, parse: Callable[[Option[Any], str], Any]) -> Configuration:
        merged = dict(self.settings)
        for key, text in texts.items():
            option = REGISTRY.get(key)
            if option is None:
                raise unknown_key(key, origin)
            try:
                text.encode()
                value = parse(option, text)
            except UnicodeEncodeError:  # bytes of a variable or an argument that are not UTF-8: records are
                raise InvalidInput(f"{key} is not UTF-8 text ({origin})", field=key) from None
            except ValueError as error:
                raise InvalidInput(f"{key}: {text!r} is not valid ({origin}): {error}", field=key) from None
            note = origin if key == option.key else f"{origin} (as {key}, which is deprecated)"
            merged[option.key] = Setting(value, text, note, key)
        return Configuration(merged)

    def texts(self) -> dict[str, str]:
        """Return key and text of everything that was set: enough to make the same configuration in another process."""
        return {key: setting.text for key, setting in self.settings.items()}


def unknown_key(key: str, origin: str) -> InvalidInput:
    """Return the error for a key that no option has, with a suggestion if a known key is similar."""
    near = difflib.get_close_matches(key, REGISTRY, n=1)
    hint = f"did you mean {near[0]}?" if near else "`emberkeep config show --all` lists all keys"
    return InvalidInput(f"{key} is not a configuration key ({origin})", field=key, hint=hint)


def options() -> Iterable[Option[Any]]:
    """Return all options sorted by key, each once."""
    return (option for key, option in sorted(REGISTRY.items()) if key == option.key)
