"""The one door to the engine: checks the key, keeps the line, lets go when a client leaves.

A request goes through `observing` (id, log line, counters), `auth` (whose key) and `app` (which
paths exist) to `exchange`, which reads it in its API's `dialects`, shapes it to the `policy`, waits
in the line of `admission`, and relays the engine's answer. `upstream` alone talks to the engine.
"""

DEFAULT_PORT = 8080
