"""Decide: arguments and results <-> JSON text, lossless, or refused with the path. No database, no settings, no clock.

The format is for ever; docs/reference/codec.md is its one table. Plain JSON values stand as they are. Every other value
is an object with a single key, its tag, that begins with "$". What is accepted comes back equal and of the same exact
type, through PostgreSQL's jsonb too, which reorders keys and rewrites numbers.

`encoding` and `decoding` are the two directions and don't know each other. Both stand on `texts` (values that are one
text, both ways), `classes` (by their paths), `refusals` and `format`.
"""

from __future__ import annotations

from django_jobs.codec.decoding import TAGS, Resolve, decode, decode_arguments
from django_jobs.codec.encoding import MAX_DIGITS, Reference, encode, encode_arguments, encode_plain
from django_jobs.codec.format import Json, ModelRef
from django_jobs.codec.refusals import MAX_DEPTH

__all__ = [
    "MAX_DEPTH", "MAX_DIGITS", "TAGS", "Json", "ModelRef", "Reference", "Resolve", "decode", "decode_arguments",
    "encode", "encode_arguments", "encode_plain",
]  # fmt: skip
