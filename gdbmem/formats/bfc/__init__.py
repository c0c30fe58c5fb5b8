"""Files about pools of memory: PyTorch's snapshots, logs and memory dumps of TensorFlow and onnxruntime."""
