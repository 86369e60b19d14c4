"""Measured, never asserted: `python -m tests.benchmarks` prints figures, each beside a raw loop of the same run.

`figures` holds values and arithmetic, `raw` the raw loops, `notes` what bodies note of themselves, `bench` what all
measurements need; `measured` names the measurements, which live in `enqueueing`, `draining`, `waiting`, `costing` and
`sharing`. `peers` has other queues do the same work.
"""
