"""All files of an installation, by their paths, and writing them below a root directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.files.durable import write_file
from emberkeep.cli.system.units import Daemon, Service, unit_text

_UNITS = "/etc/systemd/system"
_SYSUSERS = "/etc/sysusers.d/emberkeep.conf"
_TMPFILES = "/etc/tmpfiles.d/emberkeep.conf"


@dataclass(frozen=True)
class InstalledFile:
    """A file to install. ``keeps``: an existing one belongs to the operator, and is left as it is."""

    path: str
    text: str
    mode: int = 0o644
    keeps: bool = False


def files_of(service: Service, daemons: Iterable[Daemon]) -> list[InstalledFile]:
    """Return the files of an installation."""
    units = [InstalledFile(f"{_UNITS}/{daemon.unit}", unit_text(daemon, service)) for daemon in daemons]
    return [
        *units,
        InstalledFile(_SYSUSERS, _sysusers(service)),
        InstalledFile(_TMPFILES, _tmpfiles(service)),
        InstalledFile(service.config, _configuration(service), mode=0o640, keeps=True),
    ]


def _sysusers(service: Service) -> str:
    return f'# The user of Emberkeep\'s daemons and jobs.\nu {service.user} - "Emberkeep" {service.state} -\n'


def _tmpfiles(service: Service) -> str:
    place = service.config.rpartition("/")[0]
    return (
        "# Directories of Emberkeep. Nothing in them is removed by age: running jobs use old files, too.\n"
        f"d {place} 0750 root {service.user} -\n"
        f"z {service.config} 0640 root {service.user} -\n"
        f"d {service.state} 0700 {service.user} {service.user} -\n"
        f"x {service.state}\n"
    )


def _configuration(service: Service) -> str:
    return f"""\
# Settings of Emberkeep's daemons and commands: docs/configuration.md lists all keys.
emberkeep.state-dir: {service.state}

# On several machines, see docs/clusters.md:
# rest.address: jobmanager.example
# rest.bind-address: 0.0.0.0
# security.token-file: {service.config.rpartition("/")[0]}/token
# high-availability.storageDir: /mnt/shared/emberkeep
"""


def install(root: Path, files: Iterable[InstalledFile], *, replace: bool) -> Mapping[str, str]:
    """Write the files below ``root``, and return what was done with each path.

    Without ``replace``, raise Conflict before anything is written if a file exists that differs. Raises Fatal.
    """
    wanted = {_below(root, file.path): file for file in files}
    present = {path: _read(path) for path in wanted}
    different = [
        str(path)
        for path, file in wanted.items()
        if not file.keeps and present[path] is not None and present[path] != file.text
    ]
    if different and not replace:
        raise Conflict(
            f"{', '.join(different)} differ from what would be installed",
            hint="put own changes into drop-ins (systemctl edit), then use --replace; --dry-run shows the files",
        )
    done = {}
    for path, file in wanted.items():
        if present[path] is not None and (file.keeps or present[path] == file.text):
            done[str(path)] = "kept" if file.keeps else "unchanged"
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Fatal(
                f"cannot make {path.parent}: {error.strerror or error}", hint="run it as root, or use --root DIR"
            ) from error
        write_file(path, file.text.encode(), mode=file.mode)
        done[str(path)] = "written" if present[path] is None else "replaced"
    return done


def _below(root: Path, path: str) -> Path:
    return Path(f"{str(root).rstrip(os.sep)}{path}")


def _read(path: Path) -> str | None:
    """Return the text of a file; None if there is none. Raises Fatal."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Fatal(f"cannot read {path}: {error.strerror or error}", hint="run it as root") from error
