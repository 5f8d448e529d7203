"""Everything that is served over HTTP: `guard` stands before all of it, `serve` answers with predictions."""
