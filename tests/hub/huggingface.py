"""The Hugging Face dialect: /api/models/..., /R/resolve/..., and the signed URLs behind it."""

import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from hub.answers import Answer, Content, Plain, Request, Shelf, in_json
from hub.repository import Blob, Unknown

_REPO = r"(?P<repo>[^/]+/[^/]+)"
_INFO = re.compile(rf"/api/models/{_REPO}(?:/revision/(?P<revision>[^/]+))?")
_TREE = re.compile(rf"/api/models/{_REPO}/tree/(?P<revision>[^/]+)(?:/(?P<below>.+))?")
_PATHS = re.compile(rf"/api/models/{_REPO}/paths-info/(?P<revision>[^/]+)")
_RESOLVE = re.compile(rf"/{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_CACHED = re.compile(rf"/api/resolve-cache/models/{_REPO}/(?P<revision>[^/]+)/(?P<path>.+)")


def answer(shelf: Shelf, request: Request) -> Answer | None:
    """None: not this dialect."""
    path = request.path
    for pattern, respond in (
        (_TREE, _tree),
        (_PATHS, _paths),
        (_INFO, _info),
        (_CACHED, _cached),
        (_RESOLVE, _resolve),
    ):
        if found := pattern.fullmatch(path):
            return _refusal(shelf, request, found) or respond(shelf, request, found)
    return None


def _refusal(shelf: Shelf, request: Request, found: re.Match[str]) -> Answer | None:
    if request.token is not None and request.token not in shelf.tokens:
        message = "Invalid credentials in Authorization header"
        return in_json({"error": message}, HTTPStatus.UNAUTHORIZED, X_Error_Message=message)
    repo = found["repo"]
    if not shelf.repositories.exists(repo):
        # Who is not known is not told whether a private repository exists.
        code = HTTPStatus.UNAUTHORIZED if request.token is None else HTTPStatus.NOT_FOUND
        return _error(code, "RepoNotFound", "Repository not found")
    revision = found["revision"]
    if revision is None:
        return None
    try:
        shelf.repositories.resolve(repo, revision)
    except Unknown:
        return _error(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"Invalid rev id: {revision}")
    return None


def _error(status: int, code: str, message: str, **headers: str) -> Plain:
    return in_json(
        {"error": message}, status, X_Error_Code=code, X_Error_Message=message, **headers
    )


def _info(shelf: Shelf, request: Request, found: re.Match[str]) -> Answer:
    repo = found["repo"]
    revision = shelf.repositories.resolve(repo, found["revision"])
    blobs = request.query.get("blobs", "").lower() in {"true", "1"}
    siblings: list[dict[str, Any]] = []
    for path, blob in shelf.repositories.files(repo, revision).items():
        sibling: dict[str, Any] = {"rfilename": path}
        if blobs:
            size = blob.size_bytes + shelf.lie_about(path)
            sibling |= {"blobId": blob.oid, "size": size}
            if blob.lfs:
                sibling["lfs"] = {
                    "sha256": blob.sha256,
                    "size": size,
                    "pointerSize": blob.pointer_bytes,
                }
        siblings.append(sibling)
    return in_json(
        {
            "_id": "0",
            "id": repo,
            "modelId": repo,
            "author": repo.partition("/")[0],
            "sha": revision,
            "lastModified": "2025-01-20T03:46:07.000Z",
            "createdAt": "2025-01-20T03:46:07.000Z",
            "private": False,
            "gated": "manual" if repo in shelf.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings,
        }
    )


def _tree(shelf: Shelf, request: Request, found: re.Match[str]) -> Answer:
    repo, below = found["repo"], found["below"]
    revision = shelf.repositories.resolve(repo, found["revision"])
    files = shelf.repositories.files(repo, revision)
    recursive = request.query.get("recursive", "").lower() in {"true", "1"}
    entries = sorted(_entries(shelf, files), key=lambda entry: str(entry["path"]))
    kept = [entry for entry in entries if _is_below(str(entry["path"]), below, recursive=recursive)]
    if below and not kept:
        return _error(HTTPStatus.NOT_FOUND, "EntryNotFound", f"{below} does not exist")
    start = int(request.query.get("cursor", "0"))
    size = min(int(request.query.get("limit", shelf.page)), shelf.page)
    headers = {"X_Repo_Commit": revision}
    if start + size < len(kept):
        query = urlencode({**request.query, "cursor": start + size})
        headers["Link"] = f'<{request.origin}{quote(request.path)}?{query}>; rel="next"'
    return in_json(kept[start : start + size], HTTPStatus.OK, **headers)


def _entries(shelf: Shelf, files: Mapping[str, Blob]) -> Iterator[dict[str, Any]]:
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents} - {"."}
    for folder in folders:
        yield {"type": "directory", "oid": "0" * 40, "size": 0, "path": folder}
    for path, blob in files.items():
        yield _entry(shelf, path, blob)


def _entry(shelf: Shelf, path: str, blob: Blob) -> dict[str, Any]:
    size = blob.size_bytes + shelf.lie_about(path)
    entry: dict[str, Any] = {"type": "file", "oid": blob.oid, "size": size, "path": path}
    if blob.lfs:
        entry["lfs"] = {"oid": blob.sha256, "size": size, "pointerSize": blob.pointer_bytes}
    return entry


def _is_below(path: str, folder: str | None, *, recursive: bool) -> bool:
    if folder is not None:
        if not path.startswith(f"{folder}/"):
            return False
        path = path[len(folder) + 1 :]
    return recursive or "/" not in path


def _paths(shelf: Shelf, request: Request, found: re.Match[str]) -> Answer:
    files = shelf.repositories.files(found["repo"], found["revision"])
    if request.body[:1] == b"{":
        wanted = json.loads(request.body)["paths"]
    else:
        wanted = parse_qs(request.body.decode()).get("paths", [])
    return in_json([_entry(shelf, path, files[path]) for path in wanted if path in files])


def _resolve(shelf: Shelf, request: Request, found: re.Match[str]) -> Answer:
    repo, path = found["repo"], found["path"]
    if repo in shelf.gated:
        if request.token is None:
            return _gated(HTTPStatus.UNAUTHORIZED, repo, "You must be authenticated to access it.")
        if repo not in shelf.tokens[request.token]:
            return _gated(HTTPStatus.FORBIDDEN, repo, "You are not in the authorized list.")
    revision = shelf.repositories.resolve(repo, found["revision"])
    blob = shelf.repositories.files(repo, revision).get(path)
    if blob is None:
        return _error(
            HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found", X_Repo_Commit=revision
        )
    size = blob.size_bytes + shelf.lie_about(path)
    headers = {"X-Repo-Commit": revision, "Accept-Ranges": "bytes"}
    if blob.lfs:
        headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(size)}
    if not shelf.redirects:
        return Content(path, blob.on_disk, blob.size_bytes, blob.etag, headers)
    if blob.lfs:
        location = shelf.cdn_url(request.origin, repo, path, revision)
        status = HTTPStatus.FOUND
    else:
        headers |= {"ETag": f'"{blob.etag}"', "X-Linked-Size": str(size)}
        location = (
            f"/api/resolve-cache/models/{repo}/{revision}/{quote(path)}?etag=%22{blob.etag}%22"
        )
        status = HTTPStatus.TEMPORARY_REDIRECT
    return Plain(status, {**headers, "Location": location}, b"Redirecting", path)


def _gated(status: int, repo: str, why: str) -> Plain:
    return _error(status, "GatedRepo", f"Access to model {repo} is restricted. {why}")


def _cached(shelf: Shelf, request: Request, found: re.Match[str]) -> Answer:
    path = found["path"]
    blob = shelf.repositories.files(found["repo"], found["revision"]).get(path)
    if blob is None:
        return _error(HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found")
    headers = {"X-Repo-Commit": found["revision"]}
    return Content(path, blob.on_disk, blob.size_bytes, blob.etag, headers)
