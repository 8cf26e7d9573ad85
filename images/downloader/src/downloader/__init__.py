"""The `weights` job: puts every file of a lock on this disk, proves it, and writes the receipt last.

`publish` is the algorithm and `work` its decisions. `fetching` is one lot of sources: `streams` are the
threads, `transfer` one part, `partfile` a file on its way, `delivery` its proof. `sources` are where
bytes come from; `rotation` decides which is asked, `pace` how long to wait, `space` whether there is room.
"""
