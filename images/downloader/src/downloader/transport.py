"""HTTP: connections, proxies, certificates, and the words for what goes wrong on the way."""

import ssl
import urllib.request
from collections.abc import Mapping
from http.client import RemoteDisconnected
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from downloader.sources.base import Fault, Kind

USER_AGENT = "appliance-weights/1"


class Transport:
    """One request at a time for each stream. No redirect is followed and nothing tried twice here."""

    def __init__(
        self,
        *,
        proxies: Mapping[str, str],
        ca_bundle: Path | None,
        streams: int,
        connect_timeout_s: float,
        idle_timeout_s: float,
    ) -> None:
        self._proxies = proxies
        self._ca_bundle = ca_bundle
        self._streams = streams
        self._timeout = urllib3.Timeout(connect=connect_timeout_s, read=idle_timeout_s)
        self._managers: dict[str, urllib3.PoolManager] = {}
        self._open: set[urllib3.BaseHTTPResponse] = set()
        self._lock = Lock()
        self._cut = False

    def get(self, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        try:
            response = self._manager(url).request(
                "GET",
                url,
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers},
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
        except (HTTPError, OSError, ValueError) as error:
            raise fault_of(error, url) from error
        with self._lock:
            self._open.add(response)
            cut = self._cut
        if cut:
            self.done_with(response)
            raise Fault(Kind.LATER, "stopped")
        return response

    def done_with(self, response: urllib3.BaseHTTPResponse, *, reuse: bool = False) -> None:
        with self._lock:
            self._open.discard(response)
        if reuse:
            response.release_conn()
        else:
            response.close()

    def cut_all(self) -> None:
        """End every answer in flight: a stop must not wait for a silent server."""
        with self._lock:
            self._cut = True
            in_flight = list(self._open)
        for response in in_flight:
            # One that has just ended by itself has no connection left to shut.
            try:
                response.shutdown()
            except (ValueError, RuntimeError, OSError):
                continue

    def close(self) -> None:
        for manager in self._managers.values():
            # `clear` leaves the sockets to the garbage collector, which faults that are kept delay.
            for key in manager.pools.keys():  # noqa: SIM118 -- it can't be iterated
                if (pool := manager.pools.get(key)) is not None:
                    pool.close()

    def _manager(self, url: str) -> urllib3.PoolManager:
        proxy = self._proxy_for(url)
        with self._lock:
            if proxy not in self._managers:
                self._managers[proxy] = self._new_manager(proxy)
            return self._managers[proxy]

    def _proxy_for(self, url: str) -> str:
        address = urlsplit(url)
        host = address.hostname or ""
        if urllib.request.proxy_bypass_environment(  # type: ignore[attr-defined]
            f"{host}:{address.port}" if address.port else host, {"no": self._proxies.get("no", "")}
        ):
            return ""
        return self._proxies.get(address.scheme, "")

    def _new_manager(self, proxy: str) -> urllib3.PoolManager:
        settings = {
            "num_pools": 16,
            "maxsize": self._streams,
            "timeout": self._timeout,
            "ca_certs": None if self._ca_bundle is None else str(self._ca_bundle),
            "cert_reqs": "CERT_REQUIRED",
        }
        if not proxy:
            return urllib3.PoolManager(**settings)  # type: ignore[arg-type]
        address = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        login = None
        if address.username is not None:
            login = urllib3.make_headers(
                proxy_basic_auth=f"{unquote(address.username)}:{unquote(address.password or '')}"
            )
        plain = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        return urllib3.ProxyManager(plain, proxy_headers=login, **settings)  # type: ignore[arg-type]


def fault_of(error: Exception, url: str) -> Fault:
    """In words: which host, and what the system said. Never the whole address, which may be signed."""
    if isinstance(error, MaxRetryError) and error.reason is not None:
        error = error.reason
    host = urlsplit(url).netloc.rpartition("@")[2]
    if isinstance(error, SSLError) and isinstance(error.args[0], ssl.SSLCertVerificationError):
        return Fault(
            Kind.REFUSED,
            f"{host}: {error.args[0].verify_message}",
            next_step="if a proxy inspects TLS here, add its certificate to the host's trust "
            "store, then run again",
        )
    return Fault(Kind.LATER, f"{host}: {_words(error)}")


def _words(error: BaseException) -> str:
    """What the system said, out of the exceptions that libraries wrap around it."""
    match error:
        case NameResolutionError():
            return "its name can't be resolved"
        case ConnectTimeoutError() if not isinstance(error, NewConnectionError):
            return "no connection within the time allowed"
        case ReadTimeoutError():
            return "nothing came within the time allowed"
        case RemoteDisconnected():
            return "it closed the connection without an answer"
        case OSError(strerror=str(words)):
            return words.lower()
        case _:
            pass
    inner = error.__cause__ or next(
        (each for each in reversed(error.args) if isinstance(each, BaseException)), None
    )
    return _words(inner) if inner is not None else str(error) or type(error).__name__
