"""One module an API: how its requests become the engine's, and the engine's answers its own."""
