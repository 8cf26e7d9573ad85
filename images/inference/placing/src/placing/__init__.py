"""Where an engine's memory goes on a host of several NUMA nodes: chosen before the load, proven after.

Standard library, ctypes and the wire only: every engine image holds this package.
"""
