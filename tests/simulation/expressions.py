"""DynamoDB's expressions, as far as Headgate uses them: conditions and updates on flat items.

Strict where DynamoDB is: a value or name that is not used, two clauses on one path, ADD to
what is not a number and SET from what is not there are refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

TOKEN = re.compile(r"\s*(<=|>=|<>|[=<>(),+\-]|[#:]?[A-Za-z_][A-Za-z0-9_]*)")
COMPARE = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class Malformed(Exception):
    """What DynamoDB would answer with a ValidationException."""


def plain(value):
    """A typed value as one that compares: numbers with numbers, strings with strings."""
    ((kind, inner),) = value.items()
    return (kind, int(inner)) if kind == "N" else (kind, inner)


def tokens(text):
    found, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise Malformed(f"unexpected {text[position:]!r}")
        found.append(match.group(1))
        position = match.end()
    return found


class Parser:
    def __init__(self, text):
        self.left = tokens(text)
        self.used = set()

    def peek(self):
        return self.left[0] if self.left else None

    def next(self, expected=None):
        token = self.left.pop(0) if self.left else None
        if expected is not None and token != expected:
            raise Malformed(f"{token!r} where {expected!r} belongs")
        return token

    def operand(self):
        token = self.next()
        if token is None or not re.match(r"[#:A-Za-z_]", token):
            raise Malformed(f"{token!r} is no operand")
        if token[0] in ":#":
            self.used.add(token)
        if token[0] == ":":
            return lambda item, names, values: values[token]
        return lambda item, names, values: item.get(names[token] if token[0] == "#" else token)

    def path(self):
        token = self.next()
        if token[0] == "#":
            self.used.add(token)
        return lambda names: names[token] if token[0] == "#" else token

    def condition(self):
        test = self.conjunction()
        while self.peek() == "OR":
            self.next()
            test = _either(test, self.conjunction())
        return test

    def conjunction(self):
        test = self.term()
        while self.peek() == "AND":
            self.next()
            test = _both(test, self.term())
        return test

    def term(self):
        token = self.peek()
        if token == "NOT":
            self.next()
            inner = self.term()
            return lambda *a: not inner(*a)
        if token == "(":
            self.next()
            inner = self.condition()
            self.next(")")
            return inner
        if token in ("attribute_exists", "attribute_not_exists"):
            self.next()
            self.next("(")
            path = self.path()
            self.next(")")
            wanted = token == "attribute_exists"
            return lambda item, names, values: (path(names) in item) is wanted
        if token == "begins_with":
            self.next()
            self.next("(")
            left = self.operand()
            self.next(",")
            right = self.operand()
            self.next(")")
            return _known(lambda a, b: a[1].startswith(b[1]), left, right)
        left = self.operand()
        operator = self.next()
        if operator == "BETWEEN":
            low = self.operand()
            self.next("AND")
            return _known(lambda a, b, c: b <= a <= c, left, low, self.operand())
        if operator not in COMPARE:
            raise Malformed(f"{operator!r} is no comparison")
        return _known(COMPARE[operator], left, self.operand())

    def update(self):
        actions, paths = [], []
        while self.left:
            clause = self.next()
            if clause not in ("SET", "ADD", "REMOVE"):
                raise Malformed(f"{clause!r} is no clause of an update")
            while True:
                path = self.path()
                paths.append(path)
                actions.append(getattr(self, f"_{clause.lower()}")(path))
                if self.peek() != ",":
                    break
                self.next()
        return actions, paths

    def _set(self, path):
        self.next("=")
        value = self._value()
        while self.peek() in ("+", "-"):
            value = _sum(value, self.next(), self._value())

        def act(old, new, names, values):
            result = value(old, names, values)
            if result is None:
                raise Malformed(f"SET {path(names)} from an attribute that does not exist")
            new[path(names)] = result

        return act

    def _value(self):
        if self.peek() != "if_not_exists":
            return self.operand()
        self.next()
        self.next("(")
        path = self.path()
        self.next(",")
        other = self.operand()
        self.next(")")
        return lambda item, names, values: item.get(path(names)) or other(item, names, values)

    def _add(self, path):
        value = self.operand()

        def act(old, new, names, values):
            name = path(names)
            amount, before = value(old, names, values), old.get(name, {"N": "0"})
            if "N" not in amount or "N" not in before:
                raise Malformed(f"ADD to {name}, which is no number")
            new[name] = {"N": str(int(before["N"]) + int(amount["N"]))}

        return act

    def _remove(self, path):
        return lambda old, new, names, values: new.pop(path(names), None)


def _both(left, right):
    return lambda *a: left(*a) and right(*a)


def _either(left, right):
    return lambda *a: left(*a) or right(*a)


def _known(compare, *operands):
    """A comparison with a missing attribute, or of two types, is false."""

    def test(item, names, values):
        found = [operand(item, names, values) for operand in operands]
        if any(value is None for value in found):
            return False
        compared = [plain(value) for value in found]
        return len({kind for kind, _ in compared}) == 1 and compare(*compared)

    return test


def _sum(left, sign, right):
    def add(item, names, values):
        a, b = left(item, names, values), right(item, names, values)
        if a is None or b is None:
            return None
        other = int(b["N"])
        return {"N": str(int(a["N"]) + (other if sign == "+" else -other))}

    return add


@lru_cache(maxsize=10_000)
def compiled(kind, text):
    parser = Parser(text)
    made = parser.condition() if kind == "condition" else parser.update()
    if parser.left:
        raise Malformed(f"{parser.left!r} after the end of {text!r}")
    return made, frozenset(parser.used)


def check_used(params, used):
    """DynamoDB refuses names and values that no expression uses."""
    for field in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        extra = set(params.get(field, ())) - used
        if extra:
            raise Malformed(f"{field} holds {sorted(extra)}, which no expression uses")
        missing = {u for u in used if u[0] == ("#" if field.endswith("Names") else ":")} - set(
            params.get(field, ())
        )
        if missing:
            raise Malformed(f"{field} lacks {sorted(missing)}")


def holds(params, item):
    """Whether the condition of a write holds for an item (None: there is none)."""
    text = params.get("ConditionExpression")
    if text is None:
        return True
    test, _ = compiled("condition", text)
    names = params.get("ExpressionAttributeNames", {})
    return bool(test(item or {}, names, params.get("ExpressionAttributeValues", {})))


def updated(params, item):
    """The item after an update."""
    (actions, paths), _ = compiled("update", params["UpdateExpression"])
    names = params.get("ExpressionAttributeNames", {})
    touched = [path(names) for path in paths]
    if len(set(touched)) < len(touched):
        raise Malformed("two clauses of an update on one path")
    old = item or {}
    new = {**old, **params["Key"]}
    for act in actions:
        act(old, new, names, params.get("ExpressionAttributeValues", {}))
    return new
