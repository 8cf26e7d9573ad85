"""A stand-in for the engine that answers at a set pace and remembers when each of its clients left.

It speaks the engine's side of the contract (`/health`, `/v1/models`, `/v1/chat/completions`,
`/tokenize`, a bearer key) behind a real uvicorn, so that what it sees of a closed connection is what a real server
sees. `GET /_seen` tells what it saw.
"""
