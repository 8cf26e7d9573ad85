"""Bring the stack up, prove that it serves, take it down.

`core` decides and touches nothing. `adapters` touch and decide nothing.
`execute` makes them meet. `cli` chooses which ones.
"""

__version__ = "0.1.0"
