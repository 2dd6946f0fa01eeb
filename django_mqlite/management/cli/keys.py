"""The command for access keys of the HTTP broker: list, create and revoke."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.views.decorators.debug import sensitive_variables

from django_mqlite.managers import AccessKeyManager
from django_mqlite.models import AccessKey
from django_mqlite.types import RIGHTS, patterns_of

from .arguments import Options, Subcommand, duration, names
from .output import WARNING, Marked, Output, age, ago, as_command_error
from .table import Column, text_column

NO_KEYS = "There are no access keys. Create one with `manage.py mqlite keys create NAME`."
COLUMNS: tuple[Column | str, ...] = (
    "key",
    "status",
    *map(text_column, RIGHTS),
    "age",
    "expires",
    "last used",
)


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=("create", "revoke"), help="default: list the keys")
    add("name", nargs="?", metavar="NAME", help="name of the key to create or revoke")
    for right, text in (
        ("send", "send to these queues and topics; may be repeated"),
        ("listen", "receive from these queues and settle their messages"),
        ("manage", "configure, inspect, redrive and purge these queues"),
    ):
        add(f"--{right}", action="append", metavar="PATTERN", help=text)
    add("--expires", type=duration, metavar="AGE", help="the key ends after this long, such as 90d")


def _keys(options: Options, output: Output) -> None:
    keys = AccessKey.objects.db_manager(options["database"])
    action = options["action"]
    if action is not None and options["name"] is None:
        raise CommandError(f"`keys {action}` needs the name of an access key.")
    for option in (*RIGHTS, "expires"):
        if options[option] is not None and action != "create":
            raise CommandError(f"--{option} belongs to `keys create NAME`.")
    with as_command_error(TypeError, ValueError):
        match action:
            case "create":
                _create(keys, options, output)
            case "revoke":
                _revoke(keys, options["name"], output)
            case _:
                _list(keys, output)


@sensitive_variables()
def _create(keys: AccessKeyManager[Any], options: Options, output: Output) -> None:
    rights = {right: names(",".join(options[right] or ())) for right in RIGHTS}
    key, secret = keys.create_key(options["name"], **rights, expires_in=options["expires"])
    if not output.as_json:
        output.note(f"Access key {key.name} created. This is its secret, which is not shown again:")
    output.answer({**document(key), "secret": secret}, secret)


def _revoke(keys: AccessKeyManager[Any], name: str, output: Output) -> None:
    changed = keys.revoke(name)
    text = "revoked; requests with it are refused within 5 s" if changed else "was already revoked"
    output.answer({"key": name, "revoked": True, "changed": changed}, f"Access key {name} {text}.")


def _list(keys: AccessKeyManager[Any], output: Output) -> None:
    rows = list(keys.order_by("name"))
    output.answer_table(
        {"keys": [document(key) for key in rows]},
        COLUMNS,
        [
            [
                key.name,
                Marked(key.status, "" if key.status == "valid" else WARNING),
                *(", ".join(patterns_of(key.rights, right)) for right in RIGHTS),
                age(key.created_at),
                age(key.expires_at) or "never",
                ago(key.last_used_at) or "never",
            ]
            for key in rows
        ],
        empty=NO_KEYS,
    )


def document(key: AccessKey) -> dict[str, Any]:
    """Return an access key as JSON, without its digest."""
    return {
        "key": key.name,
        **{right: list(patterns_of(key.rights, right)) for right in RIGHTS},
        "status": key.status,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "last_used_at": key.last_used_at,
        "revoked_at": key.revoked_at,
    }


SUBCOMMANDS = (
    Subcommand(
        "keys",
        "List the access keys of the HTTP broker, create one or revoke one.",
        _keys,
        _add_arguments,
        "mqlite keys create shop --send 'orders*' --listen emails --expires 90d",
    ),
)
