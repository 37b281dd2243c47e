"""Gets a trained translation model out of fairseq: a folder of ONNX graphs with a runner, or a model of CTranslate2."""
