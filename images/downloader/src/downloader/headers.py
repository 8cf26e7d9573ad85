"""What the model files say of themselves, once their bytes are proven: do they fit together?

A lock may be right in every hash and still pin the wrong set of files.
"""

from pathlib import Path, PurePosixPath

from downloader.errors import VerificationFailed
from wire import Lock
from wire.gguf import Header, NotGguf, read_header
from wire.gguf_checks import problems, tokenizer_agrees

TOKENIZER = "tokenizer.json"


def require_sound_headers(lock: Lock, folder: Path) -> None:
    if found := header_problems(lock, folder):
        raise VerificationFailed(
            "the files are what the lock asks for, but no model that could run",
            why=tuple(found),
            next_step="look for another revision or quantisation of this model, and make its lock",
        )


def header_problems(lock: Lock, folder: Path) -> list[str]:
    headers: dict[str, tuple[Header, int]] = {}
    found: list[str] = []
    for file in lock.files:
        if not file.path.endswith(".gguf"):
            continue
        with (folder / file.path).open("rb") as reader:
            try:
                headers[file.path] = read_header(reader), file.size_bytes
            except NotGguf as error:
                found.append(f"{file.path}: {error}")
    found.extend(problems(headers))
    found.extend(_tokenizer_problems(lock, folder, headers))
    return found


def _tokenizer_problems(
    lock: Lock, folder: Path, headers: dict[str, tuple[Header, int]]
) -> list[str]:
    with_tokens = [header for header, _ in headers.values() if header.tokens is not None]
    return [
        f"{file.path}: {why}"
        for file in lock.files
        if PurePosixPath(file.path).name == TOKENIZER
        for header in with_tokens
        for why in tokenizer_agrees(header, (folder / file.path).read_bytes())
    ]
