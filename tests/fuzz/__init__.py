"""Fuzzing: mutated input through every decoder. `python -m tests.fuzz --help`; `test_fuzz.py` plays a slice of it."""
