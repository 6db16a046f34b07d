"""`directsuite config`: the settings and their sources."""

from __future__ import annotations

import json

import attrs

import directsuite as ds
from directsuite.cli.errors import exit_for_error
from directsuite.cli.options import CommonOptions, Json, make_app, record, register
from directsuite.cli.output import show_json, show_text
from directsuite.cli.process import ExitStatus, echo_err
from directsuite.config_file import CERTIFICATES, DEFAULT_FILE, IDENTITY, PREFIX, SECRETS, Configuration
from directsuite.settings import PLAIN_SETTINGS, make_settings

app = make_app("config", "show", "show --json")

_HIDDEN_VALUE = "(set)"


@record
class _ConfigOptions(CommonOptions):
    json: Json = False


@register(app, "show", "", "--json")
def show_config(*, options: _ConfigOptions = _ConfigOptions()) -> int:
    """Show each setting and its source: a variable, a line of the settings file, or the default."""
    configuration = Configuration.read()
    rows = _build_rows(configuration)
    if options.json:
        show_json(
            {
                "file": None if configuration.file is None else str(configuration.file),
                "profile": configuration.profile,
                "profiles": list(configuration.profiles),
                "settings": {name: {"value": value, "from": origin} for name, value, origin in rows},
            }
        )
    else:
        profiles = ", ".join(configuration.profiles) or "none"
        show_text(f"# settings file: {configuration.file or f'none; the default is {DEFAULT_FILE}'}")
        show_text(f"# profile: {configuration.profile or 'none'}; profiles in the file: {profiles}")
        for name, value, origin in rows:
            if value is not None:
                shown = _HIDDEN_VALUE if value is _HIDDEN_VALUE else json.dumps(value, default=str)
                show_text(f"{name} = {shown}  # {origin}")
    try:
        make_settings(ds.Settings, configuration)
    except ds.ConfigurationError as error:
        status, sentence = exit_for_error(error)
        echo_err(sentence)
        return status
    return ExitStatus.DONE


def _build_rows(configuration: Configuration) -> list[tuple[str, object, str]]:
    defaults = {field.name: field.default for field in attrs.fields(ds.Settings)}
    defaults["retry_attempts"] = ds.Settings().retry.attempts
    rows = list[tuple[str, object, str]]()
    for name in (*PLAIN_SETTINGS, *CERTIFICATES, *IDENTITY):
        if name in configuration:
            entry = configuration[name]
            rows.append((name, _HIDDEN_VALUE if name == "proxy" else entry.value, entry.origin))
        else:
            rows.append((name, defaults.get(name), "default"))
    secrets = [(name, f"{PREFIX}{name.upper()}") for name in SECRETS]
    rows += [(name, _HIDDEN_VALUE, variable) for name, variable in secrets if configuration.variables.get(variable)]
    return rows
