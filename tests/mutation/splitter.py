"""Finds the predicates of an SQL text by its words and brackets, and leaves out or turns one at a time.

It reads just as much SQL as the statements of the store are written in. What it finds: each part of a `where`, an `on`,
a condition of a `case`; comparisons that could be sharper or duller; the choices of `in`, `coalesce`, `least`, `case`;
summands; keys of an order or a partition; limits and locks; assignments of an update and columns of an insert.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

TOKEN = re.compile(
    r"""\s+
    | (?P<text>'(?:[^']|'')*'|"[^"]*")
    | (?P<value>%\(\w+\)s)
    | (?P<open>\(|\{[a-z_]+:?)
    | (?P<close>[)}])
    | (?P<word>\w[\w.]*)
    | (?P<sign><=|>=|<>|=>|::|\|\||->>?|[-+*/<>=])
    | (?P<mark>[,;])
    """,
    re.VERBOSE,
)

SHARPER_OR_DULLER = {"<=": "<", "<": "<=", ">=": ">", ">": ">="}

CLAUSES = frozenset(
    {
        "with", "select", "from", "join", "cross", "left", "where", "on", "group", "having", "order", "partition",
        "limit", "for", "union", "set", "returning", "values", "update", "delete", "insert", "over", "EXTRA",
    }
)  # fmt: skip
"""Words that begin a clause, or end the one before."""

LOCKS = {
    "{skip}": ["{wait}"],
    "{wait}": ["{skip}"],
    "{skip_to_delete}": ["{wait_to_delete}", "{skip}"],
    "{wait_to_delete}": ["{skip_to_delete}", "{wait}"],
}
"""How rows are locked, and how they might be by mistake."""


@dataclass(frozen=True)
class Mutant:
    """One place of a text, and what stands there instead."""

    label: str
    start: int
    end: int
    instead: str

    def of(self, text: str) -> str:
        """Give the text with the mistake in it."""
        return text[: self.start] + self.instead + text[self.end :]


@dataclass
class Piece:
    """A word, sign or literal; or a bracket or `case` with all that is in it."""

    kind: str
    start: int
    end: int
    text: str
    inner: list[Piece] = field(default_factory=list)

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text in words

    @property
    def is_lock(self) -> bool:
        return self.text in LOCKS


def mutants_of(text: str) -> list[Mutant]:
    """Find all mutants of a text, each with a label of its own."""
    pieces = _parsed(text)
    found = list(_level(text, pieces))
    if pieces and pieces[0].is_word("and"):
        found += _predicates(text, pieces[1:])
    seen: Counter[str] = Counter()
    labelled: dict[tuple[int, int, str], Mutant] = {}
    for mutant in found:
        place = (mutant.start, mutant.end, mutant.instead)
        if place in labelled or mutant.of(text).split() == text.split():
            continue
        seen[mutant.label] += 1
        again = f" ({seen[mutant.label]})" if seen[mutant.label] > 1 else ""
        labelled[place] = Mutant(mutant.label + again, *place)
    return list(labelled.values())


# -- reading


def _parsed(text: str) -> list[Piece]:
    """Read a text into pieces; a bracket, or a case, is one piece."""
    top = Piece("top", 0, len(text), text)
    stack = [top]
    place = 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"the splitter doesn't know what to make of: {text[place : place + 40]!r}")
        start, place = match.span()
        kind, said = match.lastgroup, match.group()
        if kind is None:
            continue
        if kind == "open" or said == "case":
            stack.append(Piece("case" if said == "case" else "bracket", start, place, said))
        elif kind == "close" or said == "end":
            done = stack.pop()
            done.end, done.text = place, text[done.start : place]
            stack[-1].inner.append(done)
        else:
            stack[-1].inner.append(Piece(kind, start, place, said))
    if stack != [top]:
        raise ValueError(f"a bracket or case is not closed: {text[stack[-1].start : stack[-1].start + 40]!r}")
    return top.inner


def _split(pieces: Sequence[Piece], *words: str) -> list[list[Piece]]:
    """Split pieces where one of these words or marks stands."""
    parts: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.text in words and piece.kind in ("word", "mark", "sign"):
            parts.append([])
        else:
            parts[-1].append(piece)
    return parts


def _clauses(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Split pieces before each word that begins a clause; locks and `{returning…}` are clauses of their own."""
    clauses: list[list[Piece]] = [[]]
    for piece in pieces:
        is_own = piece.is_lock or piece.text.startswith("{returning")
        # `for no key update skip locked` is one clause to its end, and `insert into … values` more than one.
        is_locking = bool(clauses[-1]) and clauses[-1][0].is_word("for")
        if (is_own or piece.is_word(*CLAUSES)) and not is_locking:
            clauses.append([])
        clauses[-1].append(piece)
    return [clause for clause in clauses if clause]


# -- finding


def _level(text: str, pieces: Sequence[Piece]) -> Iterator[Mutant]:
    """Find the mutants between two brackets, and in the brackets between them."""
    clauses = _clauses(pieces)
    for before, clause in pairwise([[], *clauses]):
        yield from _clause(text, clause, before)
    yield from _columns(text, clauses)
    for before, piece in pairwise([None, *pieces]):
        if piece.kind == "case":
            yield from _case(text, piece)
        elif piece.kind == "bracket":
            yield from _bracket(text, piece, before)
    yield from _comparisons(text, pieces)


def _clause(text: str, clause: Sequence[Piece], before: Sequence[Piece]) -> Iterator[Mutant]:
    word, rest = clause[0], clause[1:]
    if word.is_word("on") and rest and rest[0].is_word("conflict"):
        return
    if word.is_word("where", "on", "having"):
        yield from _predicates(text, rest)
    elif word.is_word("order", "partition"):
        yield from _keys(text, clause)
    elif word.is_word("limit"):
        yield _without(text, clause)
    elif word.is_word("set"):
        yield from _listed(text, _split(rest, ","))
        for assignment in _split(rest, ","):
            yield from _summands(text, assignment[2:])
    elif word.is_word("for") or word.is_lock:
        yield from _lock(text, clause)
    elif word.is_word("select") and rest and rest[0].is_word("distinct"):
        yield _without(text, rest[:1])


def _predicates(text: str, pieces: Sequence[Piece]) -> Iterator[Mutant]:
    """Leave out each part of a condition: what must hold becomes true, what may hold becomes false."""
    if any(piece.is_word("between") for piece in pieces):
        raise ValueError("the splitter doesn't know `between`: its `and` is none")
    ways = _split(pieces, "or")
    for way in ways:
        if len(ways) > 1:
            yield _replaced(text, way, "false")
        for part in _split(way, "and"):
            if len(ways) == 1 or len(_split(way, "and")) > 1:
                yield _replaced(text, part, "true")
            inner = part[0].inner if len(part) == 1 and part[0].kind == "bracket" else []
            if any(piece.is_word("or", "and") for piece in inner) and not inner[0].is_word("select", "with"):
                yield from _predicates(text, inner)


def _keys(text: str, clause: Sequence[Piece]) -> Iterator[Mutant]:
    """Leave out each key of an order, or the whole clause where it has but one; and turn what descends."""
    keys = _split(clause[2:], ",")
    if len(keys) == 1:
        yield _without(text, clause)
    yield from _listed(text, keys)
    for key in keys:
        if key[-1].is_word("desc"):
            yield Mutant(f"ascending {_said(text, key[:-1])}", key[-1].start, key[-1].end, "")


def _lock(text: str, clause: Sequence[Piece]) -> Iterator[Mutant]:
    yield _without(text, clause)
    said = _said(text, clause)
    if said in LOCKS:
        for instead in LOCKS[said]:
            yield _replaced(text, clause, instead)
    elif said.endswith("skip locked"):
        yield _without(text, clause[-2:])


def _case(text: str, case: Piece) -> Iterator[Mutant]:
    """Let each condition of a case hold always, and never; leave out each branch of a case that compares."""
    branches: list[list[Piece]] = [[]]
    for piece in case.inner:
        if piece.is_word("when", "else"):
            branches.append([])
        branches[-1].append(piece)
    operand = branches.pop(0)
    for branch in branches:
        condition, *result = _split(branch[1:], "then")
        if branch[0].is_word("else"):
            yield from _summands(text, condition)
            continue
        yield from _summands(text, result[0])
        if operand:
            if sum(b[0].is_word("when") for b in branches) > 1:
                yield _without(text, branch)
            continue
        for instead in ("true", "false"):
            label = f"{instead} for {_said(text, condition)} of {_said(text, [case])}"
            yield Mutant(label, condition[0].start, condition[-1].end, instead)
        if any(piece.is_word("and", "or") for piece in condition):
            yield from _predicates(text, condition)
    yield from _level(text, case.inner)


def _bracket(text: str, bracket: Piece, before: Piece | None) -> Iterator[Mutant]:
    yield from _level(text, bracket.inner)
    arguments = _split(bracket.inner, ",", ";")
    if before is not None and before.is_word("in") and not bracket.inner[0].is_word("select"):
        yield from _listed(text, arguments)
    elif before is not None and before.is_word("coalesce", "least", "greatest"):
        for number, argument in enumerate(arguments):
            others = [a for n, a in enumerate(arguments) if n != number]
            # SQLite refuses a coalesce of one.
            called = before.text if len(others) > 1 else ""
            instead = f"{called}({', '.join(_said(text, other) for other in others)})"
            yield Mutant(f"without {_said(text, argument)} of {before.text}", before.start, bracket.end, instead)
    for argument in arguments:
        yield from _summands(text, argument)


def _comparisons(text: str, pieces: Sequence[Piece]) -> Iterator[Mutant]:
    for number, piece in enumerate(pieces):
        if piece.kind == "sign" and piece.text in SHARPER_OR_DULLER:
            instead = SHARPER_OR_DULLER[piece.text]
            said = _said(text, pieces[max(number - 1, 0) : number + 2])
            yield Mutant(f"{instead} in {said}", piece.start, piece.end, instead)


def _summands(text: str, pieces: Sequence[Piece]) -> Iterator[Mutant]:
    """Leave out each part of a sum, where the pieces are a sum and nothing else."""
    signs = {piece.text for piece in pieces if piece.kind == "sign"} - {"::"}
    parts = _split(pieces, "+")
    if signs == {"+"} and all(parts) and not any(piece.is_word("and", "or") for piece in pieces):
        for mutant in _listed(text, parts):
            yield Mutant(f"{mutant.label} of {_said(text, pieces)}", mutant.start, mutant.end, mutant.instead)


def _columns(text: str, clauses: Sequence[Sequence[Piece]]) -> Iterator[Mutant]:
    """Leave out each column of an insert, with its value."""
    for into, clause in pairwise(clauses):
        if not (into[0].is_word("insert") and clause[0].is_word("select", "values")):
            continue
        columns = next(piece for piece in into if piece.text.startswith("("))
        given = clause[1].inner if clause[0].is_word("values") else clause[1:]
        names, values = _split(columns.inner, ","), _split(given, ",")
        for number, name in enumerate(names):
            rest = [_said(text, other) for n, other in enumerate(names) if n != number]
            left = [_said(text, other) for n, other in enumerate(values) if n != number]
            between = text[columns.end : given[0].start]
            instead = f"({', '.join(rest)}){between}{', '.join(left)}"
            yield Mutant(f"without column {_said(text, name)}", columns.start, given[-1].end, instead)


# -- saying


def _listed(text: str, parts: Sequence[Sequence[Piece]]) -> Iterator[Mutant]:
    """Leave out each part of a list of several, with the mark or sign that parts it from its neighbour."""
    if len(parts) < 2:
        return
    for number, part in enumerate(parts):
        if number + 1 < len(parts):
            start, end = part[0].start, parts[number + 1][0].start
        else:
            start, end = parts[number - 1][-1].end, part[-1].end
        yield Mutant(f"without {_said(text, part)}", start, end, "")


def _without(text: str, pieces: Sequence[Piece]) -> Mutant:
    return Mutant(f"without {_said(text, pieces)}", pieces[0].start, pieces[-1].end, "")


def _replaced(text: str, pieces: Sequence[Piece], instead: str) -> Mutant:
    return Mutant(f"{instead} for {_said(text, pieces)}", pieces[0].start, pieces[-1].end, instead)


def _said(text: str, pieces: Iterable[Piece]) -> str:
    pieces = list(pieces)
    return " ".join(text[pieces[0].start : pieces[-1].end].split())
