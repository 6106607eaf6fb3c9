"""A whole Hugging Face repository (`org/name[@revision]`), fetched with the hub's own client into its own cache.

fetch() is what fetch_model calls; main() runs inside the virtual environment that has huggingface_hub, so that
fetch_model itself needs no package. HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are the client's.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import subprocess
import sys

# What serving needs; weights in other formats and training leftovers stay behind.
_ALLOW = ["*.json", "*.jinja", "*.safetensors", "*.model", "*.txt"]
_IGNORE = ["*/*", "consolidated*", "*.index.fp8.json", "requirements*.txt"]


def is_hub_id(text: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", text) is not None


def fetch(hub_id: str, root: pathlib.Path) -> pathlib.Path:
    """The snapshot's folder. Raises FetchError with the client's reason."""
    from .catalogue import FetchError

    python = root / ".venv/hub/bin/python"
    has_client = [str(python), "-c", "import huggingface_hub"]
    if not python.exists() or subprocess.run(has_client, capture_output=True).returncode != 0:
        raise FetchError(f"fetching {hub_id} needs the Hugging Face hub client; run scripts/setup to install it")
    result = subprocess.run([str(python), __file__, hub_id], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise FetchError(f"{hub_id} was not fetched")
    return pathlib.Path(result.stdout.strip())


def main(hub_id: str) -> int:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub import errors

    repo, _, revision = hub_id.partition("@")
    wanted = {"revision": revision or None, "allow_patterns": _ALLOW, "ignore_patterns": _IGNORE}
    try:
        folder = snapshot_download(repo, **wanted)
        if not (pathlib.Path(folder) / "config.json").is_file():
            raise errors.EntryNotFoundError(f"{hub_id} has no config.json, so it is no model folder that can be served")
    except errors.GatedRepoError:
        return _fail(f"{hub_id} is gated: accept its terms on the hub, and set HF_TOKEN to a token of that account")
    except errors.RepositoryNotFoundError:
        return _fail(f"the hub has no model {repo}, or it is private: check the name, or set HF_TOKEN")
    except errors.RevisionNotFoundError:
        return _fail(f"{repo} has no revision {revision}")
    except errors.LocalEntryNotFoundError as error:
        if constants.HF_HUB_OFFLINE:
            return _fail(f"{hub_id} is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it")
        return _fail(f"the hub at {constants.ENDPOINT} cannot be reached, and {hub_id} is not in the cache: {error}")
    except Exception as error:  # the client lets those of its HTTP library through
        return _fail(f"{hub_id}: {type(error).__name__}: {error}")
    print(folder)
    return 0


def _fail(text: str) -> int:
    print(f"fetch_model: error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
