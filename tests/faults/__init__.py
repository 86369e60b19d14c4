"""Faults that people reported in systems like this one, each brought about here; the numbers are those of FAULTS.md."""
