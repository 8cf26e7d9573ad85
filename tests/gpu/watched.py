"""The engine as it is; but its process with the model tells what that takes: see watched_worker.

`WATCHED_WORKER` names another module for that process, in a trial without a GPU.
"""

import os
import sys

from kt_legacy_engine.__main__ import main

WORKER = os.environ.get("WATCHED_WORKER", "gpu.watched_worker").split()

if __name__ == "__main__":
    sys.exit(main(os.environ, sys.argv[1:], worker=(sys.executable, "-m", *WORKER)))
