raise AssertionError("where the program runs, what its tests need may be missing")
