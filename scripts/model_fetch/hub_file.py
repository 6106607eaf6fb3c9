"""One file of a Hugging Face hub repository over plain HTTP: quick to give up, able to resume.

It needs nothing but the standard library, so that a named model can be had before any package is installed.
HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are respected.

SPDX-License-Identifier: Apache-2.0
"""

import http.client
import pathlib
import re
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request

from .catalogue import Entry, FetchError
from .progress import Progress, say

_CONNECT_SECONDS = 3  # where the hub cannot be reached at all, the next source should not have to wait
_READ_SECONDS = 30
_BLOCK = 1 << 18
_ATTEMPTS_WITHOUT_A_BYTE = 3


class _Cut(Exception):
    """The connection ended early; what arrived is kept."""


def is_offline(environment) -> bool:
    return environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def fetch(entry: Entry, source: dict, partial: pathlib.Path, environment, check_disk) -> None:
    """Downloads source["file"] into `partial`, going on from what is there already."""
    if is_offline(environment):
        raise FetchError("HF_HUB_OFFLINE is set")
    endpoint = (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    url = f"{endpoint}/{source['repo']}/resolve/main/{urllib.parse.quote(source['file'])}"
    if partial.is_file() and partial.stat().st_size > entry.bytes:
        partial.unlink()
    check_disk(entry.bytes - _size(partial))
    failures = 0
    while _size(partial) < entry.bytes:
        before = _size(partial)
        try:
            _stream(url, environment.get("HF_TOKEN", ""), entry, partial)
        except _Cut as cut:
            failures = failures + 1 if _size(partial) <= before else 0
            if failures == _ATTEMPTS_WITHOUT_A_BYTE:
                raise FetchError(f"the connection to the hub keeps breaking ({cut}); run again to resume") from cut
            say(f"connection lost at {_size(partial)} of {entry.bytes} bytes ({cut}); resuming")


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _stream(url: str, token: str, entry: Entry, partial: pathlib.Path) -> None:
    offset = _size(partial)
    request = urllib.request.Request(url, headers={"User-Agent": "sysone", "Accept-Encoding": "identity"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        response = _opener().open(request, timeout=_READ_SECONDS)
    except urllib.error.HTTPError as error:
        raise FetchError(_refusal(error.code, url)) from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if offset and isinstance(reason, (ConnectionResetError, http.client.HTTPException)):
            raise _Cut(str(reason)) from error
        raise FetchError(f"the hub cannot be reached: {reason}") from error
    with response:
        offset = _checked_start(response, offset, entry)
        _copy(response, partial, offset, entry)


def _refusal(code: int, url: str) -> str:
    if code in (401, 403):
        return f"the hub refused {url} (HTTP {code}); set HF_TOKEN to a token that may read it"
    return f"the hub answered HTTP {code} to {url}"


def _checked_start(response, offset: int, entry: Entry) -> int:
    """Where the body's first byte belongs; raises when the hub's file cannot be the wanted one."""
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != offset:
            raise FetchError("the hub answered a range request with another range")
        total = int(match[2])
    else:
        offset = 0  # the whole file comes, whatever was asked for
        length = response.headers.get("Content-Length")
        total = int(length) if length else entry.bytes
    if total != entry.bytes:
        raise FetchError(f"the hub's file has {total} bytes instead of {entry.bytes}")
    return offset


def _copy(response, partial: pathlib.Path, offset: int, entry: Entry) -> None:
    progress = Progress(entry.name, entry.bytes, offset)
    with open(partial, "r+b" if partial.exists() else "wb") as file:
        file.truncate(offset)
        file.seek(offset)
        try:
            while block := _read(response):
                file.write(block)
                offset += len(block)
                progress.update(offset)
                if offset > entry.bytes:
                    raise FetchError(f"the hub sent more than the {entry.bytes} bytes of the file")
        finally:
            progress.close()
    if offset < entry.bytes:
        raise _Cut("the body ended early")


def _read(response) -> bytes:
    try:
        return response.read1(_BLOCK)  # what has arrived, so that a stopped fetch keeps it
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(str(error) or type(error).__name__) from error


def _connect_in_time(address, timeout, source_address=None):
    """socket.create_connection with one bound on looking up the name and connecting together."""
    outcome = []

    def work():
        try:
            outcome.append(socket.create_connection(address, _CONNECT_SECONDS, source_address))
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)  # a stuck name lookup may outlive us; it holds nothing
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if not outcome:
        raise TimeoutError(f"no connection to {address[0]} within {_CONNECT_SECONDS} s")
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    outcome[0].settimeout(timeout)
    return outcome[0]


class _Http(http.client.HTTPConnection):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._create_connection = _connect_in_time


class _Https(http.client.HTTPSConnection):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._create_connection = _connect_in_time


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request):
        return self.do_open(_Http, request)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, request):
        return self.do_open(_Https, request)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """The hub redirects to a store on another host; the token is the hub's alone."""

    def redirect_request(self, request, file, code, message, headers, new_url):
        redirected = super().redirect_request(request, file, code, message, headers, new_url)
        if redirected and urllib.parse.urlsplit(new_url).netloc != urllib.parse.urlsplit(request.full_url).netloc:
            redirected.remove_header("Authorization")
        return redirected


def _opener():
    return urllib.request.build_opener(_HttpHandler, _HttpsHandler, _Redirects)
