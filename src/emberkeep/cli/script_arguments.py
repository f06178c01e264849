"""Separate the command's options from the script and its arguments: options end at the script, as with spark-submit.

``emberkeep run --conf a=b app.py --conf c=d`` passes ``--conf c=d`` to app.py. Options before the script are rewritten
as ``--name=value``, so that a value may begin with a dash.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from emberkeep.base.errors import InvalidInput

FLAGS = frozenset(
    {
        *("--help", "-h", "--verbose", "-v", "--supervise", "--load-spark-defaults"),
        *("--quiet", "-q", "--detach", "--keep-logs"),
    }
)
UPGRADE_FLAGS = FLAGS | {"--cancel"}
_LONG_NAMES = {"-c": "--conf", "-m": "--module"}
_ATTACHED = ("-D",)

# Options of spark-submit that no command of Emberkeep supports, each with what to do instead.
UNSUPPORTED = {
    "--principal": "Kerberos is not supported",
    "--keytab": "Kerberos is not supported",
    "--proxy-user": "jobs run as the user of the cluster's processes",
    "--remote": "Spark Connect is not supported",
    "--extra-properties-file": "put all properties into the file of --properties-file",
    "--driver-default-class-path": "use --driver-class-path",
}
_UNSUPPORTED_HERE = {
    **UNSUPPORTED,
    "--kill": "use `emberkeep cancel JOB`",
    "--status": "use `emberkeep info JOB`",
}


def normalise(
    arguments: list[str], flags: Collection[str] = FLAGS, unsupported: Mapping[str, str] = _UNSUPPORTED_HERE
) -> list[str]:
    """Return the arguments of ``run`` or ``submit`` with ``--`` before the script and its arguments.

    With ``--module``, ``--`` is before the module's arguments. ``flags``: the options without a value. Raises
    InvalidInput if an option is among the ``unsupported``, which are given with what to do instead.
    """
    options: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            rest.insert(0, word)
            break
        name, equals, value = word.partition("=")
        if equals and name in _LONG_NAMES:
            name = _LONG_NAMES[name]
            word = f"{name}={value}"
        if name in unsupported:
            raise InvalidInput(f"{name} is not supported", field=name, hint=unsupported[name])
        if equals or word in flags or (word.startswith(_ATTACHED) and word not in _ATTACHED) or not rest:
            options.append(word)
            if equals and name == "--module":
                break
            continue
        value = rest.pop(0)
        options.append(f"{word}{value}" if word in _ATTACHED else f"{_LONG_NAMES.get(word, word)}={value}")
        if word in ("-m", "--module"):
            break
    return [*options, "--", *rest]


def normalise_after_path(arguments: list[str], flags: Collection[str] = FLAGS) -> list[str]:
    """Do what ``normalise`` does, for a command with a path or a job before the script.

    Options may precede or follow the path.

    >>> normalise_after_path(["/s/1", "--name", "counts", "app.py", "--name", "its own"])
    ['--name=counts', '--', '/s/1', 'app.py', '--name', 'its own']
    """
    before = normalise(arguments, flags)
    behind = before.index("--") + 1
    options, path, rest = before[: behind - 1], before[behind : behind + 1], before[behind + 1 :]
    if not path or any(option.startswith("--module=") for option in options):
        return before
    after = normalise(rest, flags)
    behind = after.index("--")
    return [*options, *after[:behind], "--", *path, *after[behind + 1 :]]
