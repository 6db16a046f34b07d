"""The states of the United States, whose full names the specification asks for in `state`."""

from __future__ import annotations

_NAMES = """
AL Alabama|AK Alaska|AZ Arizona|AR Arkansas|CA California|CO Colorado|CT Connecticut|DE Delaware|
DC District of Columbia|FL Florida|GA Georgia|HI Hawaii|ID Idaho|IL Illinois|IN Indiana|IA Iowa|KS Kansas|KY Kentucky|
LA Louisiana|ME Maine|MD Maryland|MA Massachusetts|MI Michigan|MN Minnesota|MS Mississippi|MO Missouri|MT Montana|
NE Nebraska|NV Nevada|NH New Hampshire|NJ New Jersey|NM New Mexico|NY New York|NC North Carolina|ND North Dakota|
OH Ohio|OK Oklahoma|OR Oregon|PA Pennsylvania|RI Rhode Island|SC South Carolina|SD South Dakota|TN Tennessee|TX Texas|
UT Utah|VT Vermont|VA Virginia|WA Washington|WV West Virginia|WI Wisconsin|WY Wyoming|AS American Samoa|GU Guam|
MP Northern Mariana Islands|PR Puerto Rico|VI Virgin Islands
"""

STATES: dict[str, str] = {entry[:2]: entry[3:] for entry in _NAMES.replace("\n", "").split("|")}
"""Full names by their two-letter codes."""

_BY_EITHER = {key.casefold(): name for code, name in STATES.items() for key in (code, name)}


def full_name(state: str) -> str | None:
    """The full name for a name or a two-letter code in any case; None where there is no such state."""
    return _BY_EITHER.get(" ".join(state.split()).casefold())
