raise AssertionError("only `python -m` runs this")
