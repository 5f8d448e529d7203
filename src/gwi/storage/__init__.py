"""The model file: one safetensors file, explicit tags, nothing that can run code."""
