"""The engine `llamacpp`: llama.cpp's own HTTP server, started only on proven weights."""

# health.py runs every few seconds and reads this: nothing heavy may be imported here.
DEFAULT_PORT = 8000
