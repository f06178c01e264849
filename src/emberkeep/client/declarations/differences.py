"""What differs between two declarations of a job."""

from __future__ import annotations

import msgspec

from emberkeep.client.declarations.declaration import DeclaredJob, as_text


class Change(msgspec.Struct, frozen=True):
    """A field that differs. ``before`` and ``after``: its values as text; None where the field is missing."""

    field: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.field}: {self.after}"
        if self.after is None:
            return f"- {self.field}: {self.before}"
        return f"~ {self.field}: {self.before} -> {self.after}"


def differences(before: DeclaredJob, after: DeclaredJob) -> list[Change]:
    """Return what differs, by field.

    Neither the values of secrets, nor the directory, nor the policy of upgrades are compared: a job need not be
    replaced for them.
    """
    old, new = _flat(before), _flat(after)
    names = sorted(old.keys() | new.keys())
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _flat(record: DeclaredJob) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in msgspec.to_builtins(msgspec.structs.replace(record.declaration, upgrade=None)).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": as_text(each) for key, each in value.items()}
        elif isinstance(value, list):
            found |= {f"{name}[{index}]": str(each) for index, each in enumerate(value)}
        else:
            found[name] = str(value)
    return found | {f"content of {name}": digest[:12] for name, digest in record.files.items()}
