"""Model files for both sides. sysone gets the file itself; llama.cpp gets copies in each of its formats, which also carry what
its own decision endpoint needs. What is missing is made once and kept beside the models (bench/ in the cache).

SPDX-License-Identifier: Apache-2.0
"""

import subprocess

from common import machine, servers

RANDOM = "qwen3-0.6b-shape"  # random weights, see scripts/bench/make_model.py
NAMES = (RANDOM, "smollm2-135m", "qwen2.5-coder-1.5b")
OWN = "own"  # the tensors as they are in the model's file
FORMATS = {"q8_0": "Q8_0", "q4_0": "Q4_0", "bf16": "BF16", "f16": "F16"}


def _say(words):
    print(f"bench: {words}", flush=True)


def _made(path, make):
    """`path`, made by make(partial path) if it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _say(f"making {path.name}")
        partial = path.with_suffix(".part")
        make(partial)
        partial.rename(path)
    return path


def _make_model(*arguments):
    python = machine.ROOT / ".venv/test/bin/python"
    if not python.exists():
        raise SystemExit("the packages of the tests are not there: run scripts/setup --test")
    subprocess.run([python, machine.ROOT / "scripts/bench/make_model.py", *arguments], check=True, stdout=subprocess.DEVNULL)


def _folder():
    return servers.cache_folder() / "bench"


def our_file(name):
    if name == RANDOM:
        return _made(_folder() / f"{RANDOM}.gguf", lambda path: _make_model("random", path))
    done = subprocess.run([machine.ROOT / "scripts/fetch_model", name], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def peer_file(name, format_name):
    own = _made(_folder() / f"{name}.peer.gguf", lambda path: _make_model("decisions", our_file(name), path))
    if format_name == OWN:
        return own

    def quantise(path):
        # The models that come in 4 bits are widened: their answers are those of 4 bits, the speed is the format's.
        subprocess.run([servers.peers_folder() / "llama-quantize", "--allow-requantize", own, path, FORMATS[format_name]],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return _made(_folder() / f"{name}.peer.{format_name}.gguf", quantise)
