"""What the GPU's assembler says of each kernel, as `nvcc -Xptxas -v` prints it; cmake/nvcc_launcher keeps it as OBJECT.ptxas.

SPDX-License-Identifier: Apache-2.0
"""

import re
import subprocess

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(sm_\d+)\w*'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse(text):
    """[{symbol, arch, registers, shared, stack, spilled}…]; `spilled` is stores and loads in bytes, `shared` the static part."""
    found, current = [], None
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            current = {"symbol": entry[1], "arch": int(entry[2][3:]), "registers": None, "shared": 0, "stack": None, "spilled": None}
            found.append(current)
        elif current is None:
            continue
        elif "Function properties for" in line and current["symbol"] not in line:
            current = None  # a function that was not inlined: its frame is not the kernel's
        elif frame := _FRAME.search(line):
            current["stack"], current["spilled"] = int(frame[1]), int(frame[2]) + int(frame[3])
        elif used := _USED.search(line):
            current["registers"] = int(used[1])
            shared = _SHARED.search(line)
            current["shared"] = int(shared[1]) if shared else 0
    for kernel in found:
        if None in kernel.values():
            raise ValueError(f"nothing is said of the registers or the stack of {kernel['symbol']} for sm_{kernel['arch']}")
    return found


def demangled(symbols):
    """{symbol: name as people write it}, by binutils' c++filt."""
    symbols = sorted(set(symbols))
    done = subprocess.run(["c++filt"], input="\n".join(symbols) + "\n", stdout=subprocess.PIPE, text=True, check=True)
    return dict(zip(symbols, map(short, done.stdout.splitlines()), strict=True))


def short(name):
    """Without return type, parameters, namespaces of ours and casts of template arguments: "Kernel<float, 4>"."""
    name = re.sub(r"^void ", "", name)
    name = name.replace("(anonymous namespace)::", "").replace("sysone::", "")
    depth = 0
    for i, letter in enumerate(name):  # parameters begin at the first bracket outside of template arguments
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:i]
            break
    return re.sub(r"\(\w+\)(?=-?\d)", "", name).replace("__nv_bfloat16", "bf16").replace("__nv_fp8_e4m3", "fp8")
