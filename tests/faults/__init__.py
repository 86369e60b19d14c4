"""Faults that people reported in systems like this one (their numbers are those of FAULTS.md), each brought about here."""
