"""A translation model as ONNX graphs: made, written, and run in place of its encoder and decoder."""
