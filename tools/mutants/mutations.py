"""Which mutants a module has: small changes of its syntax tree, in a fixed order."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS = ("log", "logger")
_ORACLES = ("check_invariants", "_hold")


@dataclass(frozen=True)
class Mutation:
    """One change. ``apply`` changes the tree that it was found in."""

    line: int
    what: str
    apply: Callable[[], None]


def mutations(tree: ast.Module) -> Iterator[Mutation]:
    """Yield every mutation of a module.

    Text, type annotations, logs, assertions and what is raised stay as they are, as do ``check_invariants``: they say
    what is wrong, and decide nothing. So do the keywords of classes and the numbers of a module's constants: whether a
    bound is 64 or 65 is no rule. ``return False`` becomes ``return True``, not None: in a condition that is the same.
    """
    for node in _deciding(tree):
        yield from _of(node)


def _deciding(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the parts of a tree that decide something, parents first."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in _ORACLES:
        return
    if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if _logs(node) or _is_constant(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        if isinstance(node, ast.ClassDef) and name == "keywords":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _deciding(child)


def _is_constant(node: ast.AST) -> bool:
    """True if a number is given a name in capitals: ``_LONG = 4``, ``_UNKNOWN = -1``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    value = node.value.operand if isinstance(node.value, ast.UnaryOp) else node.value
    return node.targets[0].id.isupper() and isinstance(value, ast.Constant)


def _logs(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in _LOGGERS


def _of(node: ast.AST) -> Iterator[Mutation]:
    yield from _of_operator(node)
    yield from _of_value(node)
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(node, block, None)
        if isinstance(statements, list):
            yield from _left_out(statements)


def _of_operator(node: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                swapped = _COMPARISONS[type(operator)]
                yield _change(node, f"{_name(operator)} → {swapped.__name__}", node.ops, index, swapped())
        case ast.BoolOp():
            other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield _set(node, f"{_name(node.op)} → {_name(other)}", "op", other)
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _ARITHMETIC:
            if not (isinstance(node, ast.BinOp) and _is_text(node)):
                other_operator = _ARITHMETIC[type(operator)]
                yield _set(node, f"{_name(operator)} → {other_operator.__name__}", "op", other_operator())
        case ast.UnaryOp(op=ast.Not()):
            # "not not x" instead of x: the tree keeps its shape.
            yield _set(node, "not left out", "operand", ast.UnaryOp(ast.Not(), node.operand))


def _of_value(node: ast.AST) -> Iterator[Mutation]:
    match node:
        case ast.Constant(value=bool(value)):
            yield _set(node, f"{value} → {not value}", "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield _set(node, f"{value} → {value + 1}", "value", value + 1)
        case ast.Name(ctx=ast.Load()) if node.id in _SWAPPED:
            yield _set(node, f"{node.id} → {_SWAPPED[node.id]}", "id", _SWAPPED[node.id])
        case ast.If() | ast.While() | ast.IfExp():
            yield _set(node, "condition negated", "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.Return(value=ast.expr()) if not _is_none(node.value) and not _is_false(node.value):
            yield _set(node, "returns None", "value", ast.Constant(None))


def _left_out(statements: list[ast.stmt]) -> Iterator[Mutation]:
    """Yield a mutation for each statement with an effect: it is left out."""
    for index, statement in enumerate(statements):
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Delete(targets=[ast.Name(), *_]):
                continue  # an argument that is not used
            case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue():
                pass
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                pass
            case _:
                continue
        if not _logs(statement):
            text = ast.unparse(statement).splitlines()[0][:60]
            yield _change(statement, f"left out: {text}", statements, index, ast.Pass())


def _set(node: ast.expr | ast.stmt, what: str, field: str, value: object) -> Mutation:
    return Mutation(node.lineno, what, lambda: setattr(node, field, value))


def _change(
    node: ast.expr | ast.stmt, what: str, items: list[ast.stmt] | list[ast.cmpop], index: int, value: ast.AST
) -> Mutation:
    return Mutation(node.lineno, what, lambda: items.__setitem__(index, value))  # type: ignore[call-overload]


def _name(node: ast.AST) -> str:
    return type(node).__name__


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_text(node: ast.BinOp) -> bool:
    """True if an operand is text, or a type: ``A | B`` in an alias."""
    sides = (node.left, node.right)
    if any(isinstance(side, ast.JoinedStr) or _constant(side, str) for side in sides):
        return True
    return isinstance(node.op, ast.BitOr) and all(_names_a_type(side) for side in sides)


def _names_a_type(node: ast.expr) -> bool:
    is_name = isinstance(node, ast.Name) and node.id[:1].isupper()
    return is_name or _is_none(node) or isinstance(node, ast.BinOp)


def _constant(node: ast.expr, kind: type) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind)
