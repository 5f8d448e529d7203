"""What the two tables share: data, splits, running, records, statistics, pictures and words."""
