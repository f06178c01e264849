"""``config show`` and ``config check``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from emberkeep.cli.cluster.commands import DEFAULT_CONFIG
from emberkeep.cli.cluster_options import ConfigOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say
from emberkeep.cli.parameters import PlainOutput
from emberkeep.cli.tables import OutputFormat, print_table
from emberkeep.cli.views.viewing import View, as_it_is, print_view

config_app = App(name="config", help="Show and check the configuration.", sort_key=30)
_HIDDEN = "******"


@config_app.command
def show(
    *,
    every: Annotated[bool, Parameter(name="--all")] = False,
    origin: bool = False,
    output: PlainOutput = OutputFormat.TABLE,
    config: ConfigOptions = DEFAULT_CONFIG,
) -> int:
    """Show the settings that a process started on this machine would get.

    Parameters
    ----------
    every
        Include keys that have their default, and show the meaning of each key.
    origin
        Show where each value comes from.
    """
    configuration = config.load()
    from emberkeep.base.configuration.values import options

    rows = []
    for option in options():
        setting = configuration.settings.get(option.key)
        if setting is None and not every:
            continue
        value = str(option.default) if setting is None else setting.text
        value = _HIDDEN if option.secret and value else value
        rows.append({"key": option.key, "value": value, "origin": configuration.origin(option), "doc": option.doc})

    def text(rows: list[dict[str, str]], is_wide: bool) -> None:
        if not rows:
            say("every key has its default; `emberkeep config show --all` lists all keys")
            return
        names = ["key", "value", *(["origin"] if origin or is_wide else []), *(["doc"] if every else [])]
        titles = {"key": "KEY", "value": "VALUE", "origin": "ORIGIN", "doc": "MEANING"}
        print_table([titles[name] for name in names], [[row[name] for name in names] for row in rows])

    print_view(output, View(text, as_it_is), rows)
    return ExitCode.OK


@config_app.command
def check(*, config: ConfigOptions = DEFAULT_CONFIG) -> int:
    """Check the configuration file, environment variables and -D settings. Exit code 2 if any setting is invalid.

    What depends on other files or programs is checked when a process starts, and by `emberkeep doctor`.
    """
    from emberkeep.base.configuration.job_users import user_names
    from emberkeep.base.configuration.options.access import OIDC_ROLES
    from emberkeep.base.configuration.options.monitoring import WEBHOOK_EVENTS
    from emberkeep.base.configuration.options.security import RUN_AS
    from emberkeep.base.configuration.places import with_resolved_places
    from emberkeep.identities.oidc import parse_role_rules
    from emberkeep.notifications.model import parse_events

    configuration = with_resolved_places(config.load())
    user_names(configuration[RUN_AS])
    parse_role_rules(configuration[OIDC_ROLES])
    parse_events(configuration[WEBHOOK_EVENTS], WEBHOOK_EVENTS.key)
    for warning in configuration.warnings():
        say(warning)
    file = config.effective_config_file()
    where = f"{file} and the environment" if file is not None else "the environment (there is no configuration file)"
    say(f"no errors in {where}; {len(configuration.settings)} keys are set")
    return ExitCode.OK
