"""Joins and unpacks the kernels that the wheels hold in fifths, while the image is built.

    python3 unpack_payload.py

They go where a wheel in one piece would have them: upstream looks there first, and so never writes
at a start. Each is checked against the sha256 that the wheel gives, by upstream's own code.
"""

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import types
from pathlib import Path


def main() -> int:
    found = importlib.util.find_spec("sgl_kernel")
    if found is None or not found.submodule_search_locations:
        sys.stderr.write("there is no package sgl_kernel\n")
        return 1
    package = Path(next(iter(found.submodule_search_locations)))
    # Its own __init__ loads kernels, and so needs a driver.
    stand_in = types.ModuleType("sgl_kernel")
    stand_in.__path__ = [str(package)]
    sys.modules["sgl_kernel"] = stand_in
    runtime = importlib.import_module("sgl_kernel.payload_runtime")
    manifest = importlib.import_module("sgl_kernel._payload_manifest")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SGL_KERNEL_KT_CACHE_DIR"] = folder
        unpacked = runtime._materialize_all()  # noqa: SLF001 - upstream gives it no other name
        for name in manifest.FILES:
            target = package.parent / name
            target.parent.mkdir(exist_ok=True)
            shutil.move(unpacked / name, target)
            target.chmod(0o755)
    for module in manifest.PAYLOAD_MODULES:
        runtime._payload_part(module).unlink()  # noqa: SLF001 - likewise
    return 0


if __name__ == "__main__":
    sys.exit(main())
