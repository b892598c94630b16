#!/usr/bin/env python3
"""safetensors_reader.py FILE…: what is in safetensors files, as JSON; written from the rules of the format alone.

Output: {"FILE": {"metadata": {...}, "tensors": {name: {"dtype", "shape", "hex"}}}}. A rule that is broken ends it with 1.
"""
import json
import struct
import sys

BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
        "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64}


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    assert len(set(keys)) == len(keys), f"a key is there twice: {keys}"
    return dict(pairs)


def read(path):
    with open(path, "rb") as file:
        whole = file.read()
    (length,) = struct.unpack_from("<Q", whole)
    assert length <= 100_000_000 and 8 + length <= len(whole), "length of the header"
    text = whole[8:8 + length].decode("utf-8")
    assert text.startswith("{"), "the header begins with {"
    assert text.rstrip(" ").endswith("}"), "the header is padded with spaces alone"
    assert (8 + length) % 8 == 0, "the data begin at a multiple of 8"
    header = json.loads(text, object_pairs_hook=no_duplicates)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()), "metadata are strings"
    data = whole[8 + length:]
    tensors, end = {}, 0
    for name, facts in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        assert set(facts) == {"dtype", "shape", "data_offsets"}, f"fields of {name}"
        begin, stop = facts["data_offsets"]
        assert begin == end and stop >= begin, f"{name}: a hole or an overlap at {begin}"
        count = 1
        for extent in facts["shape"]:
            assert isinstance(extent, int) and extent >= 0, f"shape of {name}"
            count *= extent
        assert count * BITS[facts["dtype"]] == 8 * (stop - begin), f"{name}: bytes and shape"
        assert (8 + length + begin) % (BITS[facts["dtype"]] // 8) == 0, f"{name} isn't aligned"
        tensors[name] = {"dtype": facts["dtype"], "shape": facts["shape"], "hex": data[begin:stop].hex()}
        end = stop
    assert end == len(data), "bytes that belong to no tensor"
    return {"metadata": metadata, "tensors": tensors}


def main():
    try:
        print(json.dumps({path: read(path) for path in sys.argv[1:]}))
    except AssertionError as broken:
        print(f"{sys.argv[1:]}: {broken}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
