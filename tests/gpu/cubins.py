"""Machine code of a library's kernels: `python3 -m gpu.cubins LIBRARY ARCHITECTURE` prints its digests.

By NVIDIA's own cuobjdump, which takes a library's fat binaries apart. Two builds whose digests are the
same compute the same, whatever lies around the kernels.
"""

import hashlib
import importlib.util
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

# Of the image's library for ARCHITECTURE, all but the kernels of Marlin that nobody calls.
ARCHITECTURE = "90"
OF_IMAGE = Path(__file__).with_name("image-kernels.json")
_CODE = ".text."
_SECTIONS = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and contents. ELF of 64 bits, which cubins are: System V ABI, chapter 4."""
    table, size, count, names = _SECTIONS.unpack_from(elf)
    found = [_SECTION.unpack_from(elf, table + size * n) for n in range(count)]
    strings = found[names][4]
    for name, _, _, _, offset, length, *_ in found:
        start = strings + name
        yield elf[start : elf.index(b"\0", start)].decode(), elf[offset : offset + length]


def tool() -> str:
    """Where it is not on the PATH, Triton has one."""
    spec = importlib.util.find_spec("triton")
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    return shutil.which("cuobjdump") or str(folder / "backends/nvidia/bin/cuobjdump")


def digests(library: Path, architecture: str) -> dict[str, str]:
    """Kernel's linker name -> SHA-256 of its code for the architecture, as in 90."""
    with tempfile.TemporaryDirectory() as folder:
        command = [tool(), "-xelf", f"sm_{architecture}", str(library.resolve())]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
        files = sorted(Path(folder).glob("*.cubin"))
        return {
            name.removeprefix(_CODE): hashlib.sha256(code).hexdigest()
            for file in files
            for name, code in sections(file.read_bytes())
            if name.startswith(_CODE)
        }


def beside_image(found: Mapping[str, str]) -> dict[str, int]:
    """How many kernels of the image are here, byte for byte, of how many."""
    wanted = json.loads(OF_IMAGE.read_text(encoding="utf-8"))
    same = sum(found.get(name) == digest for name, digest in wanted.items())
    return {"in the image": len(wanted), "the same here": same}


if __name__ == "__main__":
    print(json.dumps(digests(Path(sys.argv[1]), sys.argv[2]), indent=1))
