"""The one door to the engine: checks the key, passes bytes through, lets go when a client leaves.

A request goes through `observing` (id, log line, counters), `auth` (bearer key) and `app` (which
paths exist), then `passthrough`; `upstream` is the only module that talks to the engine.
"""

DEFAULT_PORT = 8080
