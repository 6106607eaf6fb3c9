#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/model/data/dequantise.bin: blocks of every quantised type and what the `gguf` package reads from them.

The package's numpy code is the independent reading. The blocks hold random bytes; only the 16-bit scales are drawn
finite, so that every output is a number and can be compared bit for bit. Needs: pip install gguf==0.19.0.

Layout: per type {u32 name length, name, u32 blocks, raw bytes, float32 outputs}; sizes follow from the type.
Usage: make_dequantise_data.py [OUT]
"""
import os
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

BLOCKS = 24
# Byte offsets of the 16-bit floats in a block.
HALVES = {"F16": [0], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def main():
    rng = np.random.default_rng(20260101)
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "data",
                                                             "dequantise.bin")
    with open(out, "wb") as f:
        for name, halves in HALVES.items():
            kind = GGMLQuantizationType[name]
            elements, size = GGML_QUANT_SIZES[kind]
            blocks = BLOCKS if elements > 1 else 2048
            raw = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
            for at in halves:
                # Any finite half: all exponents but the last one, subnormals and both zeros included.
                bits = rng.integers(0, 0x7C00, blocks).astype(np.uint16) | (rng.integers(0, 2, blocks) << 15).astype(np.uint16)
                bits[:6] = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF]
                raw[:, at:at + 2] = bits.reshape(-1, 1).view(np.uint8)
            if name == "BF16":
                raw[:, 1] &= 0xFE   # one bit of the exponent is zero: never infinite, never NaN
            values = dequantize(raw.reshape(-1), kind).astype(np.float32)
            assert values.size == blocks * elements and np.isfinite(values).all(), name
            f.write(struct.pack("<I", len(name)) + name.encode() + struct.pack("<I", blocks))
            f.write(raw.tobytes() + values.tobytes())
    print(out, os.path.getsize(out), "bytes")


if __name__ == "__main__":
    main()
