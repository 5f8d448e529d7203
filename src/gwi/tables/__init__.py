"""Files and tables to numbers, and back."""
