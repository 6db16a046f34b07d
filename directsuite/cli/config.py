"""`directsuite config`: the settings and their sources."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable

import attrs

import directsuite as ds
from directsuite.cli.options import CommonOptions, Json, make_app, record, register
from directsuite.cli.output import show_json, show_text
from directsuite.config_file import CERTIFICATES, DEFAULT_FILE, IDENTITY, PREFIX, SECRETS, Configuration
from directsuite.core.similar import find_similar
from directsuite.settings import PLAIN_SETTINGS, make_settings

app = make_app("config", "show", "show --json")

_HIDDEN_VALUE = "(set)"
_KNOWN_SUFFIXES = (
    *(name.upper() for name in (*PLAIN_SETTINGS, *CERTIFICATES, *IDENTITY, *SECRETS)),
    *("CONFIG", "PROFILE", "VERBOSE", "STATE", "LOG", "POSTGRES", "SANDBOX", "SANDBOX_TOKEN", "PKCS11_PIN"),
)
"""The names of all variables that the package reads, without the prefix."""
_GRANT_SETTINGS = (
    *("token_url", "client_id", "scope"),
    *("client_secret", "client_secret_file", "refresh_token", "refresh_token_file"),
)


@record
class _ConfigOptions(CommonOptions):
    json: Json = False


@register(app, "show", "", "--json")
def show_config(*, options: _ConfigOptions = _ConfigOptions()) -> None:
    """Show each setting and its source: a variable, a line of the settings file, or the default."""
    configuration = Configuration.read()
    rows, unused = _build_rows(configuration), find_unused_settings(configuration)
    if options.json:
        show_json(
            {
                "file": None if configuration.file is None else str(configuration.file),
                "profile": configuration.profile,
                "profiles": list(configuration.profiles),
                "settings": {
                    name: {"value": value, "from": origin, **({"used": False} if name in unused else {})}
                    for name, value, origin in rows
                },
                "unknown_variables": find_unknown_variables(configuration.variables),
            }
        )
    else:
        profiles = ", ".join(configuration.profiles) or "none"
        show_text(f"# settings file: {configuration.file or f'none; the default is {DEFAULT_FILE}'}")
        show_text(f"# profile: {configuration.profile or 'none'}; profiles in the file: {profiles}")
        for name, value, origin in rows:
            if value is not None:
                shown = _HIDDEN_VALUE if value is _HIDDEN_VALUE else json.dumps(value, default=str)
                note = f" (not used: {unused[name]} is set)" if name in unused else ""
                show_text(f"{name} = {shown}  # {origin}{note}")
        for variable, similar in find_unknown_variables(configuration.variables).items():
            show_text(f"# unknown variable: {variable}{'' if similar is None else f' (did you mean {similar}?)'}")
    make_settings(ds.Settings, configuration)  # these raise the error of an invalid setting
    configuration.prefers_grant()


def find_unknown_variables(variables: Iterable[str]) -> dict[str, str | None]:
    """Return the variables that begin as those of the package, but are not read, with the name that was meant."""
    suffixes = sorted(each.removeprefix(PREFIX) for each in variables if each.startswith(PREFIX))
    similar = {each: find_similar(each, _KNOWN_SUFFIXES) for each in suffixes if each not in _KNOWN_SUFFIXES}
    return {f"{PREFIX}{suffix}": f"{PREFIX}{names[0]}" if names else None for suffix, names in similar.items()}


def find_unused_settings(configuration: Configuration) -> dict[str, str]:
    """Return the settings and secrets that are set but not used, with the secret that has precedence."""
    secrets = [name for name in SECRETS if configuration.variables.get(f"{PREFIX}{name.upper()}")]
    unused = {f"{name}_file": name for name in secrets}
    token = "token" if "token" in secrets else "token_file"
    with contextlib.suppress(ds.ConfigurationError):  # both are set in the same place, so neither is used
        if configuration.prefers_grant():
            unused |= {"token_file": "token_url"}
        elif token in secrets or token in configuration:
            unused |= dict.fromkeys(_GRANT_SETTINGS, token)
    return {name: winner for name, winner in unused.items() if name in configuration or name in secrets}


def _build_rows(configuration: Configuration) -> list[tuple[str, object, str]]:
    defaults = {field.name: field.default for field in attrs.fields(ds.Settings)}
    defaults["retry_attempts"] = ds.Settings().retry.attempts
    rows = list[tuple[str, object, str]]()
    for name in (*PLAIN_SETTINGS, *CERTIFICATES, *IDENTITY):
        if name in configuration:
            entry = configuration[name]
            # Other URLs must not contain a password, but this also shows invalid ones.
            is_hidden = name == "proxy" or (name.endswith("_url") and "@" in str(entry.value))
            rows.append((name, _HIDDEN_VALUE if is_hidden else entry.value, entry.origin))
        else:
            rows.append((name, defaults.get(name), "default"))
    secrets = [(name, f"{PREFIX}{name.upper()}") for name in SECRETS]
    rows += [(name, _HIDDEN_VALUE, variable) for name, variable in secrets if configuration.variables.get(variable)]
    return rows
