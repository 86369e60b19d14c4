"""Drive: the loops that claim, run, settle, renew and tidy up. They decide nothing and hold no SQL."""
