"""The model's own chat template, told to begin with a system message where a request has none."""

import json

_PRELUDE = """\
{%- set appliance = namespace(told=false) -%}
{%- for message in messages -%}
{%- if message['role'] in ['system', 'developer'] -%}
{%- set appliance.told = true -%}
{%- endif -%}
{%- endfor -%}
{%- if messages and not appliance.told -%}
{%- set messages = [{'role': 'system', 'content': SYSTEM_MESSAGE}] + messages -%}
{%- endif -%}
"""


def with_system_message(template: str, message: str) -> str:
    """`message`: printable text, line breaks and tabs, of which JSON's escapes are Jinja's too."""
    return _PRELUDE.replace("SYSTEM_MESSAGE", json.dumps(message, ensure_ascii=False)) + template
