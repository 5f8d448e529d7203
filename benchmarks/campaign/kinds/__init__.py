"""One module for each kind of fault."""
