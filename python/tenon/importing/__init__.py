"""What the readers of other formats share (tenon.onnx, tenon.torch): values that are known while a model is read or
are tensors of the program, sizes as expressions, and ops that several formats have."""
