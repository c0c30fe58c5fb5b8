"""Best-fit allocators with coalescing (TensorFlow, XLA, onnxruntime), read from memory; device memory is not read."""
