"""The dialects of one or two addresses: ModelScope, a plain folder, a Python index."""

import re
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any

from hub.answers import Answer, Content, Plain, Request, Shelf, in_json
from hub.repository import Unknown
from hub.wheels import JSON_TYPE, normalized, page, sha256_of

_SCOPE = re.compile(r"/api/v1/models/(?P<repo>[^/]+/[^/]+)/repo(?P<files>/files)?")
_FOLDER = re.compile(r"/files/(?P<repo>[^/]+/[^/]+)/(?P<path>.+)")
_PROJECT = re.compile(r"/simple/(?P<project>[^/]+)/")
_WHEEL = re.compile(r"/packages/(?P<project>[^/]+)/(?P<name>[^/]+\.whl)")
# The site cuts a longer listing short, and says nothing of it.
_SCOPE_LISTS = 3000


def modelscope(shelf: Shelf, request: Request) -> Answer | None:
    found = _SCOPE.fullmatch(request.path)
    if found is None:
        return None
    try:
        revision = shelf.repositories.resolve(found["repo"], request.query.get("Revision"))
        files = shelf.repositories.files(found["repo"], revision)
    except Unknown as unknown:
        return _scope_error(f"{unknown} does not exist")
    if not found["files"]:
        path = request.query.get("FilePath", "")
        if path not in files:
            return _scope_error(f"{path} does not exist")
        blob = files[path]
        linked = {
            "X-Linked-ETag": blob.sha256,
            "X-Linked-Size": str(blob.size_bytes + shelf.lie_about(path)),
        }
        return Content(path, blob.on_disk, blob.size_bytes, blob.sha256, linked)
    below = request.query.get("Root", "").strip("/")
    recursive = request.query.get("Recursive", "").lower() == "true"
    entries: list[dict[str, Any]] = []
    for path, blob in files.items():
        parent = str(PurePosixPath(path).parent).replace(".", "", 1)
        if parent == below or (recursive and f"{parent}/".startswith(f"{below}/" * bool(below))):
            entries.append(
                {
                    "Type": "blob",
                    "Name": PurePosixPath(path).name,
                    "Path": path,
                    "Size": blob.size_bytes + shelf.lie_about(path),
                    "Sha256": blob.sha256,
                    "IsLFS": blob.lfs,
                    "Revision": revision,
                    "CommittedDate": 1737344767,
                }
            )
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents} - {"."}
    entries += [
        {"Type": "tree", "Name": PurePosixPath(folder).name, "Path": folder, "Size": 0}
        for folder in sorted(folders)
        if recursive or str(PurePosixPath(folder).parent).replace(".", "", 1) == below
    ]
    found_files = {"Files": entries[:_SCOPE_LISTS]}
    return in_json({"Code": 200, "Success": True, "Message": "success", "Data": found_files})


def _scope_error(message: str) -> Plain:
    return in_json(
        {"Code": 10010205001, "Success": False, "Message": message, "Data": None},
        HTTPStatus.NOT_FOUND,
    )


def plain_folder(shelf: Shelf, request: Request) -> Answer | None:
    found = _FOLDER.fullmatch(request.path)
    if found is None:
        return None
    try:
        blob = shelf.repositories.files(found["repo"])[found["path"]]
    except (Unknown, KeyError):
        return Plain(HTTPStatus.NOT_FOUND, {"Content-Type": "text/plain"}, b"not found\n")
    # As a file server does it: of the bytes' hash it knows nothing.
    etag = f"{blob.on_disk.stat().st_mtime_ns:x}-{blob.size_bytes:x}"
    return Content(found["path"], blob.on_disk, blob.size_bytes, etag)


def python_index(shelf: Shelf, request: Request) -> Answer | None:
    if found := _PROJECT.fullmatch(request.path):
        folder = shelf.index / normalized(found["project"])
        if not folder.is_dir():
            return Plain(HTTPStatus.NOT_FOUND, {"Content-Type": "text/plain"}, b"not found\n")
        media, text = page(folder, as_json=JSON_TYPE in (request.headers.get("Accept") or ""))
        return Plain(HTTPStatus.OK, {"Content-Type": media, "Vary": "Accept"}, text)
    if found := _WHEEL.fullmatch(request.path):
        wheel = shelf.index / found["project"] / found["name"]
        if wheel.is_file():
            return Content(wheel.name, wheel, wheel.stat().st_size, sha256_of(wheel))
    return None
