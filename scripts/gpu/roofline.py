"""The time of a pass on paper: for each operation the larger of bytes / bandwidth and floating-point operations / arithmetic rate, and
for each launch the gap before it.

SPDX-License-Identifier: Apache-2.0
"""

import collections
import json
import subprocess

from gpu import ptxas

# H200, measured: a device-to-device copy (bytes read and written) and an 8192³ bfloat16 product on random values.
BANDWIDTH, ARITHMETIC = 4.3e12, 790e12
# Assumed, not measured: from the end of a kernel to the work of the next one, within a recorded pass and launched one by one; and what
# a pass has beside (launching the graph, the copies at its ends, the launches of the read-out, waking the thread that waits).
GRAPH_GAP, STREAM_GAP, ENDS = 1.5e-6, 4.5e-6, 40e-6
# Aims of the project: milliseconds of a whole request over HTTP at 60 and 300 tokens.
AIMS = {("qwen3-0.6b", 60): 0.8, ("qwen3-0.6b", 300): 1.1, ("qwen2.5-3b", 60): 2.0, ("qwen2.5-3b", 300): 3.0}
SUMS = ("calls", "bytes", "memory_bytes", "flops", "seconds", "cached_seconds", "launches", "copies", "host_bytes")
LAYERS = {"qwen3-0.6b": 28, "qwen2.5-3b": 36, "tiny": 4}


def traces(text):
    """The documents that gpu_pass_trace prints one behind the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        found.append(document)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def kernel_names(program, traced):
    """{address: name} of the kernels that the traces launch, from the program's own symbols."""
    wanted = {launch["address"] for trace in traced for operation in trace["operations"] for launch in operation["launches"]} - {-1}
    lines = subprocess.run(["nm", "--defined-only", program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    symbols = {name: int(address, 16) for address, _, name in (line.split(maxsplit=2) for line in lines)}
    start = symbols["__executable_start"]
    by_address = {address - start: name for name, address in symbols.items() if address - start in wanted}
    if missing := wanted - by_address.keys():
        raise ValueError(f"{program}: no names for kernels at {sorted(missing)}")
    names = ptxas.demangled(by_address.values())
    return {address: names[symbol] for address, symbol in by_address.items()}


def seconds(operation, which="bytes", bandwidth=BANDWIDTH, arithmetic=ARITHMETIC):
    """`which`: bytes, or memory_bytes, as if all that passes from one operation to the next stayed in the device's cache."""
    return max(operation[which] / bandwidth, operation["flops"] / arithmetic)


def totals(trace, names):
    """Sums of one trace, by operation: {name: {one entry a key of SUMS, kernels, in_pass}}."""
    found = collections.OrderedDict()
    for operation in trace["operations"]:
        entry = found.setdefault(operation["name"], {**dict.fromkeys(SUMS, 0), "in_pass": operation["in_pass"], "kernels": []})
        counted = {**operation, "calls": 1, "launches": len(operation["launches"]), "seconds": seconds(operation),
                   "cached_seconds": seconds(operation, "memory_bytes")}
        for name in SUMS:
            entry[name] += counted[name]
        for launch in operation["launches"]:
            if launch["address"] >= 0:
                shape = {"kernel": names[launch["address"]], "threads": launch["threads"], "blocks": launch["blocks"], "shared": launch["shared"]}
                if shape not in entry["kernels"]:
                    entry["kernels"].append(shape)
    return found


def whole_model(two, three, layers):
    """`totals` of a model with that many layers, from those of its first two and of its first three: all inner layers are alike."""
    if two.keys() - three.keys() or three.keys() - two.keys():
        raise ValueError("a third layer has other operations than two")
    found = {}
    for name, of_three in three.items():
        found[name] = dict(of_three)
        for key in SUMS:
            found[name][key] = of_three[key] + (layers - 3) * (of_three[key] - two[name][key])
    return found


def summary(model, tokens, rows, two, three):
    """One row of docs/bench/gpu_passes.json."""
    layers = LAYERS[model]
    operations = whole_model(two, three, layers)
    inner = [entry for entry in operations.values() if entry["in_pass"]]
    launches = sum(entry["launches"] for entry in inner)
    inner_layer = sum(three[name]["launches"] - two[name]["launches"] for name in three)
    def total(key):
        return sum(entry[key] for entry in operations.values())

    floor, cached = total("seconds"), total("cached_seconds")
    made = {
        "model": model, "tokens": tokens, "rows": rows, "layers": layers,
        "launches": launches, "launches_a_layer": inner_layer,
        "launches_outside": total("launches") - launches, "copies": total("copies"),
        "bytes": total("bytes"), "memory_bytes": total("memory_bytes"), "flops": total("flops"),
        # Milliseconds: the work alone, and with gaps and ends; cached: see `seconds`.
        "floor_ms": floor * 1e3, "cached_floor_ms": cached * 1e3,
        "recorded_ms": (floor + launches * GRAPH_GAP + ENDS) * 1e3, "cached_recorded_ms": (cached + launches * GRAPH_GAP + ENDS) * 1e3,
        "cached_single_ms": (cached + launches * STREAM_GAP + ENDS) * 1e3,
        "operations": [{"name": name, **{key: entry[key] for key in ("calls", "bytes", "memory_bytes", "flops", "launches", "in_pass")},
                        "us": entry["seconds"] * 1e6, "cached_us": entry["cached_seconds"] * 1e6,
                        "kernels": list(dict.fromkeys(shape["kernel"] for shape in entry["kernels"]))}
                       for name, entry in operations.items()],
        "kernels": [shape for entry in operations.values() for shape in entry["kernels"]],
    }
    if aim := AIMS.get((model, tokens)):
        # What is left for the work itself, beside gaps and ends, says how near to the floor it has to be.
        made |= {"aim_ms": aim, "share_needed": cached / (aim / 1e3 - launches * GRAPH_GAP - ENDS)}
    return made


def kept(path):
    """Rows of docs/bench/gpu_passes.json."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def floor_ms(row, bandwidth, arithmetic):
    """The cached floor of a kept row for other rates than those above, operations of one name taken together."""
    return 1e3 * sum(seconds(operation, "memory_bytes", bandwidth, arithmetic) for operation in row["operations"])
