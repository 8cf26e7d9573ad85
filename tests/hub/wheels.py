"""A Python index over a folder of wheels (PEP 503 and PEP 691), and a wheel to put there."""

import base64
import hashlib
import html
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

JSON_TYPE = "application/vnd.pypi.simple.v1+json"


def a_wheel(
    folder: Path,
    project: str,
    version: str,
    members: Mapping[str, bytes],
    *,
    compressed: bool = True,
) -> Path:
    """A wheel that installers accept, its RECORD in order. `folder`: made where it is missing."""
    stem = f"{project.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    contents = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_urlsafe(body)},{len(body)}" for path, body in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{stem}-py3-none-any.whl"
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(wheel, "w", method) as archive:
        for path, body in contents.items():
            archive.writestr(zipfile.ZipInfo(path), body, method)
    return wheel


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def page(folder: Path, *, as_json: bool) -> tuple[str, bytes]:
    """Media type and text of the page of one project, whose wheels are in `folder`."""
    name = normalized(folder.name)
    wheels = [(wheel, sha256_of(wheel)) for wheel in sorted(folder.glob("*.whl"))]
    if as_json:
        files = [
            {
                "filename": wheel.name,
                "url": f"../../packages/{name}/{wheel.name}",
                "hashes": {"sha256": digest},
                "size": wheel.stat().st_size,
                "yanked": False,
            }
            for wheel, digest in wheels
        ]
        versions = sorted({wheel.name.split("-")[1] for wheel, _ in wheels})
        found = {"meta": {"api-version": "1.1"}, "name": name, "versions": versions, "files": files}
        return JSON_TYPE, json.dumps(found).encode()
    links = [
        f'<a href="../../packages/{name}/{wheel.name}#sha256={digest}">'
        f"{html.escape(wheel.name)}</a><br>"
        for wheel, digest in wheels
    ]
    return "text/html", "\n".join(
        ["<!DOCTYPE html><html><body>", *links, "</body></html>"]
    ).encode()


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _urlsafe(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
