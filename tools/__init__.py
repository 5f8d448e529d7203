"""Tools for those who work on gwi."""
