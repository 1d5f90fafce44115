#!/usr/bin/env python3
"""Makes the files of this example: a perceptron of two layers whose weights are known by hand.

h1 = relu(a + b), h2 = relu(a + b - 1), y = h1 - 2 h2: exclusive or for 0 and 1, and linear between.
"""
import json
import struct
from pathlib import Path

HERE = Path(__file__).parent
TENSORS = {
    "fc1.weight": ([2, 2], [1, 1, 1, 1]),
    "fc1.bias": ([2], [0, -1]),
    "fc2.weight": ([1, 2], [1, -2]),
    "fc2.bias": ([1], [0]),
}
GOLDEN_IN = (0.25, 0.5)
GOLDEN_OUT = (0.75,)


def floats(values):
    """Little-endian float32."""
    return struct.pack(f"<{len(values)}f", *values)


def safetensors():
    """The weights in the safetensors format."""
    header, data = {}, b""
    for name, (shape, values) in TENSORS.items():
        start = len(data)
        data += floats(values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return struct.pack("<Q", len(text)) + text + data


def program():
    """The graph."""
    graph = {
        "name": "xor",
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 2]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 1]}],
        "nodes": [
            {"op": "linear", "input": "x", "weight": "fc1.weight", "bias": "fc1.bias",
             "output": "h"},
            {"op": "relu", "input": "h", "output": "a"},
            {"op": "linear", "input": "a", "weight": "fc2.weight", "bias": "fc2.bias",
             "output": "y"},
        ],
    }
    return {"format": "npufs-sim-program", "version": "0.7.6", "architecture": "graph",
            "graphs": [graph]}


def artifact():
    """The template of the manifest."""
    return {
        "schema": "npufs-manifest-1",
        "kind": "tensor",
        "description": "exclusive or, as a perceptron of two layers",
        "calbin_version": "0.7.6",
        "compatible": {"runtime": ["0.7.6"]},
        "batch": 1,
        "example": {"model": "xor", "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 0]}]},
        "programs": [{
            "name": "xor",
            "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 2]}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 1]}],
            "csrs": []}],
        "golden": [{"program": "xor", "input": "golden/xor.in", "output": "golden/xor.out",
                    "tolerance": 1e-6}],
    }


def main():
    """Write all of it beside this script."""
    for folder in ("calbin", "golden"):
        (HERE / folder).mkdir(exist_ok=True)
    (HERE / "calbin/program.json").write_text(json.dumps(program(), indent=2) + "\n")
    (HERE / "calbin/weights.safetensors").write_bytes(safetensors())
    (HERE / "golden/xor.in").write_bytes(floats(GOLDEN_IN))
    (HERE / "golden/xor.out").write_bytes(floats(GOLDEN_OUT))
    (HERE / "artifact.json").write_text(json.dumps(artifact(), indent=2) + "\n")


if __name__ == "__main__":
    main()
