"""Shared parts without a subject of their own: errors, validation, files, random streams, compiling, workers."""
