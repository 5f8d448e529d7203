"""Fitted models as ONNX graphs: what `predict` says, without Python's or torch's help."""
