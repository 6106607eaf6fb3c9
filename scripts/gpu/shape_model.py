"""Makes a Hugging Face folder of a well-known shape with random weights, with nothing but Python's own library. The tokenizer is that
of tests/golden/qwen3: a small one, so prompts are long in tokens; speed depends on the shape alone, and answers mean nothing.

SPDX-License-Identifier: Apache-2.0
"""

import array
import json
import pathlib
import random
import shutil
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TOKENIZER = ROOT / "tests/golden/qwen3"
# layers, hidden, heads, key/value heads, head_dim, intermediate, vocabulary
SHAPES = {"qwen3-0.6b": (28, 1024, 16, 8, 128, 3072, 151936), "tiny": (4, 128, 4, 2, 64, 256, 1024)}
# Values are repeated after so many: no multiple of a row's length, so rows differ.
_DISTINCT = 1000003


def tensors(name):
    """[(name, shape, is a norm weight)…]"""
    layers, hidden, heads, kv_heads, dim, wide, vocab = SHAPES[name]
    found = [("model.embed_tokens.weight", [vocab, hidden], False), ("model.norm.weight", [hidden], True)]
    for layer in range(layers):
        at = f"model.layers.{layer}."
        found += [(at + "input_layernorm.weight", [hidden], True), (at + "post_attention_layernorm.weight", [hidden], True),
                  (at + "self_attn.q_norm.weight", [dim], True), (at + "self_attn.k_norm.weight", [dim], True)]
        found += [(at + f"self_attn.{part}_proj.weight", shape, False)
                  for part, shape in (("q", [heads * dim, hidden]), ("k", [kv_heads * dim, hidden]), ("v", [kv_heads * dim, hidden]),
                                      ("o", [hidden, heads * dim]))]
        found += [(at + f"mlp.{part}_proj.weight", shape, False)
                  for part, shape in (("gate", [wide, hidden]), ("up", [wide, hidden]), ("down", [hidden, wide]))]
    return found


def _bfloat16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def make(name, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    layers, hidden, heads, kv_heads, dim, wide, vocab = SHAPES[name]
    config = json.loads((_TOKENIZER / "config.json").read_text(encoding="utf-8"))
    config |= {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": dim,
               "intermediate_size": wide, "vocab_size": vocab, "max_position_embeddings": 8192, "dtype": "bfloat16",
               "layer_types": ["full_attention"] * layers}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(_TOKENIZER / file, folder / file)

    header, at = {}, 0
    for tensor, shape, _ in tensors(name):
        size = 2
        for length in shape:
            size *= length
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    source = random.Random(7)
    values = array.array("H", (_bfloat16(source.gauss(0, hidden**-0.5)) for _ in range(_DISTINCT))).tobytes()
    one = struct.pack("<H", _bfloat16(1.0))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor, shape, norm in tensors(name):
            begin, end = header[tensor]["data_offsets"]
            left = end - begin
            while left > 0:
                part = (one * (left // 2) if norm else values)[:left]
                file.write(part)
                left -= len(part)
    return folder
