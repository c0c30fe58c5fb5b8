"""A stock onnxruntime whose tensors live in its arena; it does what each line of its input asks for.

run N: one inference with N floats, whose results are kept.  drop K: results go.  Its log, of all severities, is stderr.
"""

import sys
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

ort.set_default_logger_severity(0)


def session() -> Any:
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n"])
    result = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n"])
    weights = helper.make_tensor(
        "W", TensorProto.FLOAT, [30000], np.ones(30000, np.float32).tobytes(), raw=True
    )
    nodes = [
        helper.make_node("Add", ["X", "X"], ["a"]),
        helper.make_node("Mul", ["a", "X"], ["b"]),
        helper.make_node("Concat", ["b", "W"], ["c"], axis=0),
        helper.make_node("ReduceMax", ["c"], ["s"], keepdims=0),
        helper.make_node("Add", ["b", "s"], ["Y"]),
    ]
    graph = helper.make_graph(nodes, "g", [given], [result], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    model.ir_version = 6
    options = ort.SessionOptions()
    options.enable_mem_pattern = False
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


keep = []
opened = session()
print("ready", flush=True)
for line in sys.stdin:
    verb, number = line.split()
    if verb == "run":
        value = ort.OrtValue.ortvalue_from_numpy(np.ones(int(number), np.float32))
        binding = opened.io_binding()
        binding.bind_ortvalue_input("X", value)
        binding.bind_output("Y")
        opened.run_with_iobinding(binding)
        keep.append((binding, binding.get_outputs()))
    elif keep:
        keep.pop(int(number) % len(keep))
    print(len(keep), flush=True)
