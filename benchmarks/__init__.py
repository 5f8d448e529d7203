"""One script, one table or figure; records in results/."""
