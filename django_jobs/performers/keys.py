"""Declare: the key of a job, made of what its options say and of its arguments."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

from django_jobs import codec
from django_jobs.performers.instances import reference
from django_jobs.performers.options import Key, Options, Unset

LONGEST = 300
"""So many characters the columns hold; longer keys are hashed."""


class Keys:
    """Names the keys of a performer's jobs. `name` is its stored name, since keys are a performer's own."""

    def __init__(self, name: str, options: Options, signature: inspect.Signature | None) -> None:
        self._name = name
        self._unique, self._waiting = _given(options.unique), _given(options.unique_while_waiting)
        self._signature = signature

    @property
    def are_wanted(self) -> bool:
        """Whether the options ask for one."""
        return self._unique is not None or self._waiting is not None

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Give the unique and the waiting key of a job with these arguments; one of them, or both, are None.

        Raises TypeError for a function that gives anything but a text or None, and where True is asked for of a
        performer that isn't known here.
        """
        return self._key("unique", self._unique, args, kwargs), self._key(
            "unique_while_waiting", self._waiting, args, kwargs
        )

    def _key(self, option: str, given: Key | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        key = given
        if given is True:
            key = self._of_all(option, args, kwargs)
        elif callable(given):
            key = given(*args, **kwargs)
        if key is None:
            return None
        if not isinstance(key, str):
            message = f"{self._name}: the function of {option} gave {key!r:.80}; let it give a text, or None for no key"
            raise TypeError(message)
        return _stored(self._name, key)

    def _of_all(self, option: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Write all arguments in one form, however they were given: by name, with defaults, mappings sorted."""
        if self._signature is None:
            message = f"{self._name}: {option}=True needs the signature, and no performer of that name is here"
            raise TypeError(message)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        text = codec.encode(dict(bound.arguments), path=option, limit=None, reference=reference)
        return json.dumps(_in_order(json.loads(text)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _given(key: Key | Unset | None) -> Key | None:
    return None if isinstance(key, Unset) else key


def _in_order(node: Any) -> Any:
    """Sort what has no order of its own: sets."""
    if isinstance(node, list):
        return [_in_order(item) for item in node]
    if not isinstance(node, dict):
        return node
    ordered = {name: _in_order(item) for name, item in node.items()}
    for tag in ("$set", "$frozenset"):
        if node.keys() == {tag} and isinstance(ordered[tag], list):
            ordered[tag].sort(key=json.dumps)
    return ordered


def _stored(name: str, key: str) -> str:
    """Give the text of the column; no name holds a slash or a hash."""
    stored = f"{name}/{key}"
    if len(stored) <= LONGEST and "\0" not in key and key.isprintable():
        return stored
    return f"{name}#{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"
