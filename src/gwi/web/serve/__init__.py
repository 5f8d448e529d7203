"""`gwi serve`: model files that answer over HTTP, in JSON, CSV and Arrow."""
