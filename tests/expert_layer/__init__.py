"""One layer of experts in Q4_K, and what torch makes of it: CPU kernels are checked against that.

`drawn` says what goes in, `compute` runs kernels on it where they are, `record` made `recorded.npz`.
"""
