"""The front door: scikit-learn's interface, model files, tables and large tables."""
