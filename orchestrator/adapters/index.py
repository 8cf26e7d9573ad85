"""The Python index that this host's pip is configured for, asked through pip itself."""

import json
import logging
import subprocess
import sys

from orchestrator.core.locking import SourceUnavailable
from wire.order import WheelMember

log = logging.getLogger(__name__)

# Pip may have to fetch a whole wheel to read its metadata, where an index serves none beside it.
RESOLVE_WITHIN_S = 600
PROBE_WITHIN_S = 15
ONLY_A_WHEEL = ("--dry-run", "--ignore-installed", "--no-deps", "--only-binary", ":all:")
QUIET = ("--quiet", "--no-input", "--disable-pip-version-check")


def locate(package: str, version: str, member: str) -> WheelMember:
    """Where the index keeps that wheel, and its sha256. Nothing is installed."""
    report = _pip(
        ["install", *QUIET, *ONLY_A_WHEEL, "--report", "-", f"{package}=={version}"],
        RESOLVE_WITHIN_S,
    )
    return parse_report(report, member)


def answers(package: str) -> bool:
    """Does the index answer, and know this package? Bounded, and one small request."""
    try:
        _pip(
            ["index", "versions", *QUIET, "--timeout", "5", "--retries", "0", package],
            PROBE_WITHIN_S,
        )
    except SourceUnavailable as trouble:
        log.debug("no Python index: %s", trouble)
        return False
    return True


def parse_report(report: str, member: str) -> WheelMember:
    """`pip install --report`: the one package's URL and hash."""
    try:
        download = json.loads(report)["install"][0]["download_info"]
        url = str(download["url"])
        sha256 = str(download["archive_info"]["hashes"]["sha256"])
    except (ValueError, LookupError, TypeError) as error:
        raise SourceUnavailable(
            "pip does not tell the wheel's URL and sha256",
            next_step=f"a newer pip does: {sys.executable} -m pip install --upgrade pip",
            lasting=True,
        ) from error
    if not url.startswith(("http://", "https://")):
        raise SourceUnavailable(f"pip finds it at {url}, not on an index", lasting=True)
    return WheelMember(url=url, sha256=sha256, member=member)


def _pip(words: list[str], within_s: float) -> str:
    command = [sys.executable, "-m", "pip", *words]
    log.debug("%s", " ".join(command))
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceUnavailable(
            f"pip had no answer within {within_s:g} s", next_step="check pip's configuration"
        ) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if "ERROR" in line]
        raise SourceUnavailable(
            f"pip: {lines[-1] if lines else done.stderr.strip()[-200:]}",
            next_step="check this host's pip configuration: pip config list",
        )
    return done.stdout
