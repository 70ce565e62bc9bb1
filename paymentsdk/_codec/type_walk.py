"""The only visitor of the types of Structs, as `msgspec.inspect` describes them.

It answers three questions about a type: which types a value can have (`alternatives`), what it holds (`parts`), and
what it holds at any depth (`walk`). Code that must be fast is generated as source along a type, and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from typing import NamedTuple, TypeAlias, cast

from msgspec import UNSET, Struct, inspect

from paymentsdk._validate import unfrozen
from paymentsdk.errors import RequestInvalid

#: The `Meta(extra=...)` of a declared type.
Marks: TypeAlias = Mapping[str, object]
_NO_MARKS: Marks = {}
#: A compiled check of one value: returns the name of a member that fails, or `None`.
Check: TypeAlias = Callable[[object], str | None]
#: Converts a part of plain data to another form. It raises `RequestInvalid` with the place relative to the part.
Step: TypeAlias = Callable[[object], object]
#: freezegun replaces the class in a module's namespace, which msgspec compares with; it does not look into a tuple.
MOMENTS = (unfrozen(datetime),)


class MemberType(NamedTuple):
    """A type that a value at some place may have."""

    path: str
    """The place: `.name` for a member by its name in JSON, `[]` for entries of a list, `{}` for values of a dict."""
    type: inspect.Type
    """The type of the value. Never a union, and without its `Metadata`."""
    marks: Marks
    """The `Meta(extra=...)` of its declaration."""


def alternatives(info: inspect.Type, path: str = "", marks: Marks = _NO_MARKS) -> Iterator[MemberType]:
    """Yield each type that a value of *info* may have, including null if it may be null."""
    match info:
        case inspect.Metadata(type=inner, extra=extra):
            yield from alternatives(inner, path, {**marks, **(extra or {})})
        case inspect.UnionType(types=types):
            for alternative in types:
                yield from alternatives(alternative, path, marks)
        case inspect.CustomType(cls=cls) if cls in MOMENTS:
            yield MemberType(path, inspect.DateTimeType(tz=True), marks)
        case _:
            yield MemberType(path, info, marks)


def allows_null(info: inspect.Type) -> bool:
    """Return whether a value of *info* may be null: its type includes null, or any type."""
    kinds = [member.type for member in alternatives(info)]
    return any(isinstance(kind, inspect.NoneType) or is_free_form(kind) for kind in kinds)


def is_free_form(info: inspect.Type) -> bool:
    """Return whether a value of *info* may be any JSON value."""
    return isinstance(info, inspect.AnyType) or (isinstance(info, inspect.CustomType) and info.cls is object)


def parts(info: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """Yield the types that a value of *info* holds, with their places; *info* is not a union."""
    yield from ((f".{field.encode_name}", field.type) for field in getattr(info, "fields", ()))
    entries = [getattr(info, "item_type", None), *getattr(info, "item_types", ())]
    yield from (("[]", entry) for entry in entries if entry is not None)
    if isinstance(info, inspect.DictType):
        yield "{}", info.value_type


def walk(info: inspect.Type, path: str = "", above: tuple[object, ...] = ()) -> Iterator[MemberType]:
    """Yield every type within *info*, and *info* first; the types within a recursive Struct only once."""
    for member in alternatives(info, path):
        yield member
        cls = getattr(member.type, "cls", None)
        if cls is None or cls not in above:
            for place, part in parts(member.type):
                yield from walk(part, path + place, above if cls is None else (*above, cls))


def rows_of(kind: type) -> tuple[str, str, type[Struct]] | None:
    """Return the member of a response that lists Structs: its name here, its name in JSON, their type; or `None`."""
    lists: list[tuple[str, str, type[Struct]]] = [
        (field.name, field.encode_name, row.type.cls)
        for field in getattr(inspect.type_info(kind), "fields", ())
        for listed in alternatives(field.type)
        if isinstance(listed.type, inspect.ListType | inspect.VarTupleType) and not allows_null(listed.type.item_type)
        for row in alternatives(listed.type.item_type)
        if isinstance(row.type, inspect.StructType)
    ]
    return lists[0] if len(lists) == 1 else None


def can_hold_secrets(body: object) -> bool:
    """Return whether a body of this class may hold a credential; most cannot, and are not searched."""
    kind: type = type(body)
    return _declares_secrets(kind)


@cache
def _declares_secrets(kind: type) -> bool:
    return any(
        getattr(getattr(member.type, "cls", None), "__secrets__", None)
        # These types may hold anything.
        or isinstance(member.type, inspect.DictType | inspect.AnyType | inspect.CustomType | inspect.RawType)
        for member in walk(inspect.type_info(kind))
    )


# --- functions written along a type -----------------------------------------------------------------------------------


def compile_function(signature: str, body: Iterable[str], scope: Mapping[str, object]) -> Callable[..., object]:
    """Compile the function with *signature* and the lines of *body*, which may use the names of *scope*.

    Dataclasses do the same: an attribute that the source names is read twice as fast as with `getattr`.
    """
    defaults = "".join(f", {name}={name}" for name in scope)  # Defaults are read faster than globals.
    namespace = dict(scope)
    lines = [f"def compiled({signature}{defaults}):", *indented(body)]
    exec("\n".join(lines), namespace)  # noqa: S102 - the source contains only names of members
    return cast("Callable[..., object]", namespace["compiled"])


def compile_check(kind: type, broken: Callable[[MemberType, str], str | None], names: Mapping[str, object]) -> Check:
    """Compile a check that names the member of a value of *kind* that is broken, at any depth.

    It returns some name that is not a member if the value is not a Struct, or if the check itself fails. A Struct
    inside another Struct of its own class always counts as broken.

    Args:
        kind: The type.
        broken: Gets a type within *kind*, and the name of a value in the source that is not null. It returns the source
            of a condition that is true for a broken value, apart from the value's members. `None` for no condition. For
            a Struct, it is evaluated after the members.
        names: The names that this source uses.
    """

    def source(info: inspect.Type, above: tuple[type | None, ...], member: str) -> Iterator[str]:
        """Yield the source that checks the variable of this depth, inside the types *above* it."""
        value, below = f"v{len(above)}", f"v{len(above) + 1}"
        types = [of for of in alternatives(info) if not isinstance(of.type, inspect.NoneType)]
        several = sum(isinstance(of.type, inspect.StructType) for of in types) > 1
        for of in types:
            condition = broken(of, value)
            broken_lines = [f"if {condition}:", f"    return {member!r}"] if condition else []
            lines: list[str] = []
            match of.type:
                case inspect.StructType(cls=cls) if cls in above:
                    lines = [f"return {member!r}"]  # The source cannot be as deep as its values.
                case inspect.StructType(cls=cls, fields=fields):
                    for field in fields:
                        if checks := [*source(field.type, (*above, cls), member if above else field.encode_name)]:
                            # A member that may be unset is then `UNSET`, which `inspect` does not report as a default.
                            may_be_unset = not field.required and field.default is field.default_factory
                            guards = [f"{below} is not UNSET"] if may_be_unset else []
                            may_be_none = field.default is None or allows_null(field.type)
                            guards += [f"{below} is not None"] if may_be_none else []
                            lines += [f"{below} = {value}.{field.name}"]
                            lines += [f"if {' and '.join(guards)}:", *indented(checks)] if guards else checks
                    lines += broken_lines  # The rules across members come last.
                case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                    lines = broken_lines
                    if checks := [*source(item, (*above, None), member)]:
                        guard = [f"    if {below} is None:", "        continue"] if allows_null(item) else []
                        lines += [f"for {below} in {value}:", *guard, *indented(checks)]
                case _:
                    lines = broken_lines
            if lines and several and isinstance(of.type, inspect.StructType):
                # The tag says which of the Structs it is, and each has another tag.
                lines = [f"if {value}.__struct_config__.tag == {of.type.tag!r}:", *indented(lines)]
            yield from lines

    lines = ["try:", *indented(source(inspect.type_info(kind), (), "*"))]
    lines += ["    return None", "except Exception:", "    return '*'"]
    return cast("Check", compile_function("v0", lines, {**names, "UNSET": UNSET}))


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines* as the body of a compound statement."""
    return (f"    {line}" for line in lines)


# --- plain data, changed along a type ---------------------------------------------------------------------------------


def compile_step(info: inspect.Type, leaf: Callable[[MemberType], Step | None]) -> Step | None:
    """Compile the step that converts plain data of a type to another form; `None` if no part of it changes.

    Args:
        info: The type. Its values are dicts and lists, which are changed in place.
        leaf: Returns the step of one type. It runs before the steps of the type's members.

    Raises:
        RequestInvalid: A tuple holds a value that must be changed.
    """
    steps = [step for member in alternatives(info) for step in _steps_of(member, leaf)]
    if len(steps) < 2:  # noqa: PLR2004 - a single step needs no function around it
        return steps[0] if steps else None

    def all_steps(value: object) -> object:
        for step in steps:
            value = step(value)
        return value

    return all_steps


def _steps_of(member: MemberType, leaf: Callable[[MemberType], Step | None]) -> Iterator[Step]:
    if (step := leaf(member)) is not None:
        yield step
    compiled = [(place, compile_step(part, leaf)) for place, part in parts(member.type)]
    is_tuple = isinstance(member.type, inspect.TupleType | inspect.NamedTupleType)
    steps = {place.removeprefix("."): step for place, step in compiled if step is not None}
    if not steps:
        return
    if hasattr(member.type, "item_type"):
        yield partial(_change_entries, steps["[]"])
    elif isinstance(member.type, inspect.DictType):
        yield partial(_change_values, steps["{}"])
    elif is_tuple or getattr(member.type, "array_like", False):
        raise RequestInvalid("$", "amounts and moments must not be in tuples")
    else:
        yield partial(_change_members, steps)


def _change_entries(step: Step, value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    return [item if item is None else _changed(step, item, number) for number, item in enumerate(value)]


def _change_values(step: Step, value: object) -> object:
    return _change_members(dict.fromkeys(value, step), value) if isinstance(value, dict) else value


def _change_members(steps: Mapping[str, Step], value: object) -> object:
    if isinstance(value, dict):
        for name, step in steps.items():
            if value.get(name) is not None:
                value[name] = _changed(step, value[name], name)
    return value


def _changed(step: Step, value: object, key: str | int) -> object:
    """Apply a step to the value at *key*. For a rejected value, each level adds its place to the front of the error."""
    try:
        return step(value)
    except RequestInvalid as error:
        raise below(f"[{key}]" if isinstance(key, int) else f".{key}", error) from None


def check_finite(data: object) -> None:
    """Check the numbers of plain data at any depth, also where the type does not restrict them.

    Raises:
        RequestInvalid: A number is NaN or an infinity, which JSON does not have.
    """
    entries: Iterable[tuple[str | int, object]] = ()
    match data:
        case dict():
            entries = data.items()
        case list() | tuple():
            entries = enumerate(data)
        case float() | Decimal() if not Decimal(data).is_finite():
            raise RequestInvalid("", f"{data} is not a JSON number")
        case _:
            pass
    for key, value in entries:
        _changed(check_finite, value, key)


def below(place: str, error: RequestInvalid) -> RequestInvalid:
    """Return *error* with *place* in front of its path: paths are built from the inside out."""
    return RequestInvalid(place + error.path, error.reason, error.rule)
