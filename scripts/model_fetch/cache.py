"""The model cache: where it is, whether a file in it is the right one, and how a new file enters it.

A verified file has a stamp beside it, FILE.sha256, with the checksum, size and modification time that were verified.
While they agree the file is not hashed again: a gigabyte need not be read before every start.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import fcntl
import glob
import hashlib
import os
import pathlib
import shutil

from .catalogue import Entry, FetchError
from .progress import human, say

_HASH_BLOCK = 1 << 20
_DISK_SLACK = 16 << 20  # file system overhead, and room for whoever else writes meanwhile


def models_folder(environment) -> pathlib.Path:
    """${SYSONE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/sysone}/models; an empty variable counts as unset."""
    base = environment.get("SYSONE_CACHE")
    if not base:
        shared = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(shared, "sysone")
    return pathlib.Path(base) / "models"


def sha256_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class Cache:
    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FetchError(f"cannot make the cache folder {folder}: {error.strerror}; set SYSONE_CACHE") from error

    def path(self, entry: Entry) -> pathlib.Path:
        return self._folder / entry.file

    def work_path(self, entry: Entry, suffix: str) -> pathlib.Path:
        """A partial file of one kind of source; it stays there until a fetch has succeeded."""
        return self._folder / f"{entry.file}.{suffix}"

    def holds(self, entry: Entry) -> bool:
        """True when the right file is there. A wrong file is reported and removed."""
        path = self.path(entry)
        if not path.is_file():
            return False
        if self._stamp(entry).is_file() and self._stamp(entry).read_text() == self._stamp_text(entry):
            return True
        fault = self._fault(path, entry)
        if fault:
            say(f"{path} {fault}; it is removed")
            self._remove(path, self._stamp(entry))
            return False
        self._write_stamp(entry)
        return True

    def admit(self, entry: Entry, candidate: pathlib.Path) -> None:
        """Moves a complete download to its place if it is the right file; otherwise removes it and raises."""
        fault = self._fault(candidate, entry)
        if fault:
            self._remove(candidate)
            raise FetchError(f"the downloaded file {fault}; it was removed")
        os.replace(candidate, self.path(entry))
        self._write_stamp(entry)

    def remove_leftovers(self, entry: Entry) -> None:
        """Partial files and journals of sources that were tried before the one that succeeded."""
        self._remove(*self._folder.glob(f"{glob.escape(entry.file)}.*.part*"))

    def check_disk(self, needed: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < needed + _DISK_SLACK:
            raise FetchError(
                f"{self._folder} has {human(free)} free, but {human(needed + _DISK_SLACK)} are needed; "
                "free some space, or set SYSONE_CACHE to a larger disk"
            )

    @contextlib.contextmanager
    def lock(self, entry: Entry):
        """One fetch of a model at a time on this machine; the others wait, and then find it in the cache."""
        with open(self._folder / f".{entry.file}.lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another process is fetching {entry.name}; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _stamp(self, entry: Entry) -> pathlib.Path:
        return self._folder / f"{entry.file}.sha256"

    def _stamp_text(self, entry: Entry) -> str:
        status = self.path(entry).stat()
        return f"{entry.sha256} {status.st_size} {status.st_mtime_ns}\n" if status.st_size == entry.bytes else ""

    def _write_stamp(self, entry: Entry) -> None:
        temporary = self._folder / f"{entry.file}.sha256.new"
        temporary.write_text(self._stamp_text(entry))
        os.replace(temporary, self._stamp(entry))

    @staticmethod
    def _fault(path: pathlib.Path, entry: Entry) -> str:
        """What is wrong with the file as this entry's model; empty when nothing is."""
        size = path.stat().st_size
        if size != entry.bytes:
            return f"has {size} bytes instead of {entry.bytes}"
        actual = sha256_of(path)
        return "" if actual == entry.sha256 else f"has sha256 {actual} instead of {entry.sha256}"

    @staticmethod
    def _remove(*paths: pathlib.Path) -> None:
        for path in paths:
            path.unlink(missing_ok=True)
