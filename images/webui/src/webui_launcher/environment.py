"""What Open-WebUI 0.12.4 is told, and why: its whole environment, as a pure function.

Only what differs from its defaults. Left at their defaults on purpose:

* AIOHTTP_CLIENT_TIMEOUT: when set, it limits a whole reply, and a long one on a CPU takes longer.
* WEBUI_NAME and the logos: the licence asks to leave the branding alone.
* ENABLE_OTEL (off): the only telemetry in the slim install.
"""

import json
from collections.abc import Mapping

from webui_launcher.settings import DATA, Secrets, Settings

# Nothing else gets through. A proxy variable that Docker puts into every container would send the
# chats to the proxy, and a stray ENABLE_... would change the appliance.
INHERITED = ("PATH", "LANG", "TZ", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")

# Answers are text, and there is nothing in this stack to search, draw or run code with.
# builtin_tools alone would put 36 tool descriptions (24 kB) before every "hello".
MODEL_METADATA = {
    "capabilities": {
        "builtin_tools": False,
        "code_interpreter": False,
        "image_generation": False,
        "vision": False,
        "web_search": False,
    }
}


def environment(
    settings: Settings, secrets: Secrets, inherited: Mapping[str, str]
) -> dict[str, str]:
    return {
        **{name: inherited[name] for name in INHERITED if name in inherited},
        **_place(),
        **_engine(settings, secrets),
        **_people(settings, secrets),
        **_one_request_per_chat(),
        **_left_out(),
    }


def _place() -> dict[str, str]:
    return {
        # Upstream's own switch for the dependencies of requirements-slim.txt: without it the
        # start fails on a vector database that is not installed.
        "USE_SLIM_DOCKER": "true",
        # No update check, no model downloads, no pip at start: there is no way out of here.
        "OFFLINE_MODE": "true",
        # Hides the API browser at /docs.
        "ENV": "prod",
        "DATA_DIR": str(DATA),
        # Rewritten at every start, so neither in the read-only root nor in the volume.
        "STATIC_DIR": "/tmp/static",  # noqa: S108 - the container's own tmpfs
        "HOME": "/tmp",  # noqa: S108 - nothing is meant to be kept there
        # Otherwise the database keeps the first start's values, and a later change of the model,
        # the key or the port would be ignored.
        "ENABLE_PERSISTENT_CONFIG": "false",
    }


def _engine(settings: Settings, secrets: Secrets) -> dict[str, str]:
    return {
        "OPENAI_API_BASE_URLS": settings.gateway_url,
        "OPENAI_API_KEYS": secrets.api_key,
        # Names the task of a call that the page makes for itself, should somebody turn one on; for
        # a person's own message it is empty. The gateway serves such calls last.
        "OPENAI_API_CONFIGS": json.dumps({"0": {"headers": {"X-Background-Task": "{{TASK}}"}}}),
        # The default looks for an Ollama server on the host.
        "ENABLE_OLLAMA_API": "false",
        # A new chat starts with the model: nobody has to pick it.
        "DEFAULT_MODELS": settings.model_name,
        # Models are private to the admin by default. This one is for everybody with an account.
        "BYPASS_MODEL_ACCESS_CONTROL": "true",
        # Every page load lists the models: with the gateway down, wait 5 s for it instead of 10.
        "AIOHTTP_CLIENT_TIMEOUT_OPENAI_MODEL_LIST": "5",
    }


def _people(settings: Settings, secrets: Secrets) -> dict[str, str]:
    origins = [f"http://{host}:{settings.public_port}" for host in ("127.0.0.1", "localhost")]
    return {
        # Signs the sessions: constant, so that a restart signs nobody out.
        "WEBUI_SECRET_KEY": secrets.secret_key,
        # Makes the account only while there is no user at all. Afterwards the password belongs to
        # the person, who changes it in the page: a new secret does not overwrite it.
        "WEBUI_ADMIN_EMAIL": settings.admin_email,
        "WEBUI_ADMIN_PASSWORD": secrets.admin_password,
        # The admin makes the other accounts.
        "ENABLE_SIGNUP": "false",
        # The default, pending, would show people whom the admin has let in a waiting page.
        "DEFAULT_USER_ROLE": "user",
        # What links to these pages start with.
        "WEBUI_URL": origins[0],
        # The default, *, lets any web page talk to this one. Replies come over a websocket that
        # only listed origins may open, so both ways to write the address are here.
        "CORS_ALLOW_ORIGIN": ";".join(origins),
    }


def _one_request_per_chat() -> dict[str, str]:
    # By default the engine also writes titles, tags, follow-up questions and search queries for
    # every chat, the title before the reply: four requests for one "hello", each with a prompt
    # of its own that takes the place of the conversation in the engine's cache.
    return {
        "ENABLE_TITLE_GENERATION": "false",
        "ENABLE_TAGS_GENERATION": "false",
        "ENABLE_FOLLOW_UP_GENERATION": "false",
        "ENABLE_SEARCH_QUERY_GENERATION": "false",
        "ENABLE_RETRIEVAL_QUERY_GENERATION": "false",
        "ENABLE_IMAGE_PROMPT_GENERATION": "false",
        # Schedules chats that nobody waits for.
        "ENABLE_AUTOMATIONS": "false",
        "DEFAULT_MODEL_METADATA": json.dumps(MODEL_METADATA),
    }


def _left_out() -> dict[str, str]:
    return {
        # Uploaded text goes into the prompt as it is: slim has no embedding model.
        "BYPASS_EMBEDDING_AND_RETRIEVAL": "true",
        # Needs the in-browser Python that the image leaves out.
        "ENABLE_CODE_EXECUTION": "false",
        "ENABLE_CODE_INTERPRETER": "false",
        # Python from the page that would run in this container, beside the key.
        "ENABLE_PLUGINS": "false",
        # Made for models with tools, see MODEL_METADATA.
        "ENABLE_MEMORIES": "false",
        "ENABLE_CALENDAR": "false",
        "ENABLE_NOTES": "false",
        # A button that sends chats to a public site.
        "ENABLE_COMMUNITY_SHARING": "false",
    }
