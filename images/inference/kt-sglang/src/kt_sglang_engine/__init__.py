"""The engine `kt-sglang`: KTransformers 0.7 on sglang, started only on proven weights.

The launcher is process number 1 and imports nothing of the engine; the server is its child, with
children of its own.
"""

# health.py runs every few seconds and reads these: nothing heavy may be imported here.
DEFAULT_PORT = 8000
DEFAULT_STATE_FILE = "/tmp/kt-sglang.json"  # noqa: S108 - the container's own, a tmpfs
