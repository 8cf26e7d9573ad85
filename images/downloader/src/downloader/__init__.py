"""The `weights` job: puts every file of a lock on this disk, proves it, and writes the receipt last.

`publish` is the algorithm, `work` its decisions, `copying` one file, `sources` where bytes come from.
"""
