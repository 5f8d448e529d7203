"""What a fit leaves behind: it predicts, and does nothing else."""
