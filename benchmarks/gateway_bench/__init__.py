"""The parts of gateway.py beside this folder: a stub engine, its load, and the proxies between."""
