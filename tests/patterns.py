"""The regular expressions of the package, with the methods that apply them, and inputs that make them backtrack.

Run as a module, it applies each pattern to its inputs in a separate process. It prints the pattern if an input of eight
times the size takes more than QUADRATIC_SECONDS, or if the system ended the process after LIMIT seconds of processor
time.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import re
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

import directsuite

SIZE = 8_192
"""The length of an input in characters."""
LIMIT = 10
"""The maximum seconds of processor time for all inputs of a pattern."""
SUSPICIOUS_SECONDS = 0.005
"""The processor time from which eight times the size is measured. A quadratic pattern needs 0.02 seconds or more."""
QUADRATIC_SECONDS = 0.5
"""The processor time for eight times the size. A linear pattern needs 0.03 seconds, a quadratic one 1.5 or more."""
MEASUREMENTS = 3
"""The number of measurements that must exceed QUADRATIC_SECONDS, because a busy machine makes single ones longer."""
_METHODS = frozenset({"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
_UNBOUNDED_REPEATS = 1_000
"""Repeats with a lower maximum are bounded."""
_PUMPS = 14
"""The number of characters that are tried in pairs."""
_PARSER: Any = importlib.import_module("re._parser")  # no public functions exist
_COMPILER: Any = importlib.import_module("re._compiler")
_COMMON_CHARS = "a0 \n\t\"'<>=:;,.-_\\/(){}[]@?*!&\x00é"


@attrs.frozen
class AppliedPattern:
    """One regular expression, and one method that applies it to input."""

    place: str
    """The module, and the name of the constant or the line."""
    pattern: str | bytes
    flags: int
    method: str

    def __str__(self) -> str:
        return f"{self.place} {self.method} {self.pattern!r}"

    def apply(self, text: str) -> None:
        compiled: Any = re.compile(self.pattern, self.flags)
        subject: Any = text if isinstance(self.pattern, str) else text.encode("utf-8")
        if self.method in ("match", "fullmatch", "search"):
            getattr(compiled, self.method)(subject)
        else:
            for _ in compiled.finditer(subject):
                pass


def list_patterns() -> list[AppliedPattern]:
    """Find each pattern that a module of the package compiles or passes to `re` or msgspec, and how it is applied."""
    trees = dict(_parse_modules())
    methods = {name: _collect_methods([tree]) for name, tree in trees.items()}
    everywhere = _collect_methods(trees.values())
    found = dict[tuple[object, ...], AppliedPattern]()
    for name, tree in trees.items():
        namespace = vars(importlib.import_module(name))
        for place, pattern, flags, used in _find_in_module(name, tree, namespace, everywhere | methods[name]):
            for method in used:
                key = (pattern, flags, method)
                found.setdefault(key, AppliedPattern(place, pattern, flags, method))
    return sorted(found.values(), key=str)


def _parse_modules() -> Iterator[tuple[str, ast.Module]]:
    root = Path(directsuite.__file__).parent
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.endswith("__main__"):
            yield name, ast.parse(file.read_text("utf-8"))


def _collect_methods(trees: Any) -> dict[str, set[str]]:
    """Return the methods that are called or passed on, by the name of the constant."""
    methods = dict[str, set[str]]()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                name = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", None)
                if isinstance(name, str):
                    methods.setdefault(name, set()).add(node.attr)
    return methods


def _find_in_module(
    name: str, tree: ast.Module, namespace: dict[str, Any], methods: dict[str, set[str]]
) -> Iterator[tuple[str, str | bytes, int, Sequence[str]]]:
    compiled: dict[str, re.Pattern[Any]] = {
        key: each for key, each in namespace.items() if isinstance(each, re.Pattern)
    }
    for constant, pattern in compiled.items():
        yield f"{name}.{constant}", pattern.pattern, pattern.flags, sorted(methods.get(constant, ()))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function, place = ast.unparse(node.func), f"{name}:{node.lineno}"
        if function.startswith("re.") and function.removeprefix("re.") in _METHODS:
            value = _evaluate(node.args[0], namespace)
            flags = [each.value for each in node.keywords if each.arg == "flags"] + node.args[2:]
            known = [flag for each in flags if isinstance(flag := _evaluate(each, namespace), int)]
            if isinstance(value, str | bytes):
                yield place, value, sum(map(int, known)), [function.removeprefix("re.")]
        elif function.endswith("Meta"):
            for keyword in node.keywords:
                if keyword.arg == "pattern" and isinstance(value := _evaluate(keyword.value, namespace), str):
                    yield place, value, 0, ["search"]


def _evaluate(node: ast.expr, namespace: dict[str, Any]) -> object:
    """Return the value of an expression of constants, and None for another."""
    try:
        return eval(ast.unparse(node), dict(namespace))  # noqa: S307  of this package's own source
    except NameError:
        return None


def list_inputs(applied: AppliedPattern, size: int = SIZE) -> Iterator[str]:
    """Yield texts of `size` characters at which a pattern with nested or adjacent repeats takes many steps."""
    pattern = applied.pattern if isinstance(applied.pattern, str) else applied.pattern.decode("latin-1")
    flags = applied.flags & (re.IGNORECASE | re.DOTALL | re.VERBOSE | re.MULTILINE)
    parsed: Any = _PARSER.parse(pattern, flags)
    letters = "".join(dict.fromkeys([*_literals(parsed), *_COMMON_CHARS]))
    prefixes = list(dict.fromkeys(["", *(text for text, _ in _repeats("", parsed, letters))]))
    bodies = list(dict.fromkeys([body for _, many in _repeats("", parsed, letters) for body in many]))
    pumps = list(dict.fromkeys([*bodies, *letters]))
    for prefix, body in itertools.product(prefixes[:6], pumps[:40]):
        for suffix in ("", "\x00"):
            yield prefix + body * ((size - len(prefix)) // len(body)) + suffix
    for first, second in itertools.product(pumps[:_PUMPS], pumps[:_PUMPS]):
        yield ((first + second) * (size // len(first + second)) + "\x00")[:size]
        half = size // 2
        yield first * (half // len(first)) + second * (half // len(second)) + "\x00"


def _literals(parsed: Any) -> Iterator[str]:
    """Yield the characters that a parsed pattern names."""
    for node in parsed:
        operation, argument = node
        name = str(operation)
        if name in ("LITERAL", "NOT_LITERAL"):
            yield chr(argument)
        elif name == "IN":
            for kind, value in argument:
                if str(kind) == "LITERAL":
                    yield chr(value)
                elif str(kind) == "RANGE":
                    yield chr(value[0])
        for inner in _list_inner_patterns(node):
            yield from _literals(inner)


def _list_inner_patterns(node: Any) -> list[Any]:
    """Return the patterns within a node."""
    operation, argument = str(node[0]), node[1]
    if operation == "BRANCH":
        return list(argument[1])
    if operation in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if operation == "ATOMIC_GROUP":
        return [argument]
    if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    return [argument[3]] if operation == "SUBPATTERN" else []


def _repeats(before: str, parsed: Any, letters: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each repeat without a low maximum: a text that leads to it, and texts that it takes."""
    for node in parsed:
        if str(node[0]) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and node[1][1] >= _UNBOUNDED_REPEATS:
            yield before, _samples(node[1][2], letters)
        for inner in _list_inner_patterns(node):
            yield from _repeats(before, inner, letters)
        before += next(iter(_samples([node], letters)), "")


def _samples(parsed: Any, letters: str) -> list[str]:
    """Return a few texts that a parsed pattern matches."""
    texts = [""]
    for node in parsed:
        operation, argument = str(node[0]), node[1]
        if operation == "LITERAL":
            choices = [chr(argument)]
        elif operation in ("IN", "NOT_LITERAL", "ANY", "CATEGORY"):
            choices = [letter for letter in letters if _takes(node, letter)][:8]
        elif operation == "BRANCH":
            choices = [text for option in argument[1] for text in _samples(option, letters)[:3]]
        elif operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            choices = [text * max(1, min(argument[0], 4)) for text in _samples(argument[2], letters)[:4]]
        elif operation in ("SUBPATTERN", "ATOMIC_GROUP"):
            choices = _samples(_list_inner_patterns(node)[0], letters)
        else:
            continue
        texts = [text + choice for text in texts[:6] for choice in choices] or texts
    return [text for text in texts[:12] if text]


def _takes(node: Any, letter: str) -> bool:
    """Return True if a single-character node matches a letter."""
    pattern = _PARSER.SubPattern(_PARSER.State(), [node])
    return _COMPILER.compile(pattern, re.UNICODE).match(letter) is not None


def backtracks(applied: AppliedPattern, size: int = SIZE) -> bool:
    """Return True if the pattern takes more than QUADRATIC_SECONDS for an input of eight times the size."""
    for number, text in enumerate(list_inputs(applied, size)):
        if _measure(applied, text) > SUSPICIOUS_SECONDS:
            large = next(itertools.islice(list_inputs(applied, 8 * size), number, None))
            if all(_measure(applied, large) > QUADRATIC_SECONDS for _ in range(MEASUREMENTS)):
                return True
    return False


def _measure(applied: AppliedPattern, text: str) -> float:
    """Return the seconds of processor time that an input takes."""
    start = time.process_time()
    applied.apply(text)
    return time.process_time() - start


def main() -> None:
    for applied in list_patterns():
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            os._exit(backtracks(applied))
        _, status = os.waitpid(child, 0)
        if status != 0:
            sys.stdout.write(f"{applied}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
