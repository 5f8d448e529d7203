"""Scores, and checks of the ways uncertainty is silently wrong."""
