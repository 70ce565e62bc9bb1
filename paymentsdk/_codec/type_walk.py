"""The one visitor of the types that Structs are declared with, as `msgspec.inspect` describes them.

Whoever asks something of a type asks it here: what a value can be (`alternatives`), what it holds (`parts`), and what
it holds at any depth (`walk`). What has to be fast is written as source along a type, and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple, TypeAlias, cast

from msgspec import UNSET, Struct, inspect

from paymentsdk.errors import RequestInvalid

#: What the types of a declaration say of a value besides: `Meta(extra=...)`.
Marks: TypeAlias = Mapping[str, object]
_NO_MARKS: Marks = {}
#: A compiled check of one value: names what is wrong in it.
Check: TypeAlias = Callable[[object], str | None]
#: Takes a part of plain data, and returns it in another form. It raises `RequestInvalid` with the place below the part.
Step: TypeAlias = Callable[[object], object]
#: freezegun replaces the class that a module has, and so what msgspec compares with; none in a tuple.
MOMENTS = (datetime,)
_STRINGS = (inspect.StrType, inspect.EnumType, inspect.DateTimeType)
#: Types of which it is known what strings they hold.
_KNOWN = (
    *(*_STRINGS, inspect.StructType, inspect.VarTupleType, inspect.ListType, inspect.NoneType),
    *(inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.DecimalType),
)


class Found(NamedTuple):
    """A type that a value may be of, at some place."""

    path: str
    """The place: `.name` for a member by its name in JSON, `[]` for the entries of a list, `{}` for those of a dict."""
    type: inspect.Type
    """What a value there may be; never a union, and without its `Metadata`."""
    marks: Marks
    """What its declaration says besides."""

    @property
    def name(self) -> str:
        """The innermost member of the place, without the lists around it."""
        return self.path.rpartition(".")[2].partition("[")[0].partition("{")[0]


def alternatives(info: inspect.Type, path: str = "", marks: Marks = _NO_MARKS) -> Iterator[Found]:
    """Yield each type that a value of *info* may be of; null among them, where it may be null."""
    match info:
        case inspect.Metadata(type=inner, extra=extra):
            yield from alternatives(inner, path, {**marks, **(extra or {})})
        case inspect.UnionType(types=types):
            for one in types:
                yield from alternatives(one, path, marks)
        case inspect.CustomType(cls=cls) if cls in MOMENTS:
            yield Found(path, inspect.DateTimeType(tz=True), marks)
        case _:
            yield Found(path, info, marks)


def allows_null(info: inspect.Type) -> bool:
    """Whether null is a value of its own where a value of *info* stands: it says so, or anything may stand there."""
    kinds = [found.type for found in alternatives(info)]
    is_any = any(isinstance(kind, inspect.CustomType) and kind.cls is object for kind in kinds)
    return is_any or any(isinstance(kind, inspect.AnyType | inspect.NoneType) for kind in kinds)


def parts(info: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """Yield what a value of *info* holds, and where; *info* is no union."""
    yield from ((f".{field.encode_name}", field.type) for field in getattr(info, "fields", ()))
    entries = [getattr(info, "item_type", None), *getattr(info, "item_types", ())]
    yield from (("[]", entry) for entry in entries if entry is not None)
    if isinstance(info, inspect.DictType):
        yield "{}", info.value_type


def walk(info: inspect.Type, path: str = "", above: tuple[object, ...] = ()) -> Iterator[Found]:
    """Yield every type within *info*, itself first; those within a Struct that holds itself only once."""
    for found in alternatives(info, path):
        yield found
        cls = getattr(found.type, "cls", None)
        if cls is None or cls not in above:
            for place, inner in parts(found.type):
                yield from walk(inner, path + place, above if cls is None else (*above, cls))


def rows_of(kind: type) -> tuple[str, str, type[Struct]] | None:
    """Return the member of a response that lists Structs, by its names here and in JSON; `None` if not one does."""
    found: list[tuple[str, str, type[Struct]]] = [
        (f.name, f.encode_name, one.type.cls)
        for f in getattr(inspect.type_info(kind), "fields", ())
        for listed in alternatives(f.type)
        if isinstance(listed.type, inspect.ListType | inspect.VarTupleType) and not allows_null(listed.type.item_type)
        for one in alternatives(listed.type.item_type)
        if isinstance(one.type, inspect.StructType)
    ]
    return found[0] if len(found) == 1 else None


def days_without_time(kind: type) -> frozenset[str]:
    """Return the names of the days of a response; none if other data may have the same names."""
    found = list(walk(inspect.type_info(kind)))
    days = {one.name for one in found if one.marks.get("day")}
    strings = {one.name for one in found if isinstance(one.type, _STRINGS) and not one.marks.get("day")}
    is_known = not days & strings and all(one.marks.get("day") or isinstance(one.type, _KNOWN) for one in found)
    return frozenset(days if is_known else ())


def can_hold_secrets(body: object) -> bool:
    """Whether a body of the class of *body* may hold a credential at some depth; most cannot, and are not searched."""
    kind: type = type(body)
    return _declares_secrets(kind)


@cache
def _declares_secrets(kind: type) -> bool:
    return any(
        getattr(getattr(found.type, "cls", None), "__secrets__", None)
        # Who knows what is in there?
        or isinstance(found.type, inspect.DictType | inspect.AnyType | inspect.CustomType | inspect.RawType)
        for found in walk(inspect.type_info(kind))
    )


# --- functions written along a type -----------------------------------------------------------------------------------


def compile_function(signature: str, body: Iterable[str], scope: Mapping[str, object]) -> Callable[..., object]:
    """Compile the function with *signature* and the lines of *body*, in which the names of *scope* are known.

    As dataclasses are: an attribute that is named in the source is taken twice as fast as one that is looked up.
    """
    given = "".join(f", {name}={name}" for name in scope)  # Defaults of arguments are found faster than globals.
    found = dict(scope)
    lines = [f"def compiled({signature}{given}):", *(f"    {line}" for line in body)]
    exec("\n".join(lines), found)  # noqa: S102 - the source holds nothing but names of members
    return cast("Callable[..., object]", found["compiled"])


def compile_check(kind: type, broken: Callable[[Found, str], str | None], names: Mapping[str, object]) -> Check:
    """Compile what names the member of a value of *kind* that has something broken in it, at any depth.

    It names no member that there is, but something, where the value is no Struct or the check itself fails in it.

    Args:
        kind: The type.
        broken: Given a type within it, and the name of a value in the source, which is not null: returns the source of
            what is true of a broken one, besides what it holds; `None` if none is. Of a Struct, that is asked last.
        names: What that source refers to.
    """
    deeper: dict[str, object] = {}

    def again(part: type) -> str:
        """Return the source of the check of *part*, which holds itself; none can be as deep as its values."""
        if part == kind:
            return "compiled"
        name = f"again{len(deeper)}"
        deeper[name] = cache(lambda: compile_check(part, broken, names))
        return f"{name}()"

    def source(info: inspect.Type, above: tuple[type | None, ...], member: str) -> Iterator[str]:
        """Yield the source that checks the variable of this depth in what is *above* it."""
        value, below = f"v{len(above)}", f"v{len(above) + 1}"
        found = [one for one in alternatives(info) if not isinstance(one.type, inspect.NoneType)]
        several = sum(isinstance(one.type, inspect.StructType) for one in found) > 1
        for one in found:
            condition = broken(one, value)
            own = [f"if {condition}:", f"    return {member!r}"] if condition else []
            lines: list[str] = []
            match one.type:
                case inspect.StructType(cls=cls) if cls in above:
                    lines = [f"if {again(cls)}({value}) is not None:", f"    return {member!r}"]
                case inspect.StructType(cls=cls, fields=fields):
                    for field in fields:
                        if inner := [*source(field.type, (*above, cls), member if above else field.encode_name)]:
                            # What may be left unset is `UNSET` then, of which `inspect` says no default.
                            may_be_unset = not field.required and field.default is field.default_factory
                            guards = [f"{below} is not UNSET"] if may_be_unset else []
                            may_be_none = field.default is None or allows_null(field.type)
                            guards += [f"{below} is not None"] if may_be_none else []
                            lines += [f"{below} = {value}.{field.name}"]
                            lines += [f"if {' and '.join(guards)}:", *indented(inner)] if guards else inner
                    lines += own  # Its rules across its members are the last to be asked for.
                case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                    lines = own
                    if inner := [*source(item, (*above, None), member)]:
                        guard = [f"    if {below} is None:", "        continue"] if allows_null(item) else []
                        lines += [f"for {below} in {value}:", *guard, *indented(inner)]
                case _:
                    lines = own
            if lines and several and isinstance(one.type, inspect.StructType):
                # Which of them it is, its tag says, and no other has the same.
                lines = [f"if {value}.__struct_config__.tag == {one.type.tag!r}:", *indented(lines)]
            yield from lines

    lines = ["try:", *indented(source(inspect.type_info(kind), (), "*"))]
    lines += ["    return None", "except Exception:", "    return '*'"]
    return cast("Check", compile_function("v0", lines, {**names, "UNSET": UNSET, **deeper}))


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines* as the body of a compound statement."""
    return (f"    {line}" for line in lines)


# --- plain data, changed along a type ---------------------------------------------------------------------------------


def compile_step(info: inspect.Type, leaf: Callable[[Found], Step | None]) -> Step | None:
    """Compile what brings plain data of a type into another form; `None` if nothing of the type changes.

    Args:
        info: The type. Its values are dicts and lists, which are changed in place.
        leaf: Returns the step of one type, which is asked before its members.

    Raises:
        RequestInvalid: A tuple holds what has to be changed.
    """
    steps = [step for found in alternatives(info) for step in _steps_of(found, leaf)]
    if len(steps) < 2:  # noqa: PLR2004 - one step needs no other around it
        return steps[0] if steps else None

    def all_steps(value: object) -> object:
        for step in steps:
            value = step(value)
        return value

    return all_steps


def _steps_of(found: Found, leaf: Callable[[Found], Step | None]) -> Iterator[Step]:
    if (step := leaf(found)) is not None:
        yield step
    held = [(place, compile_step(part, leaf)) for place, part in parts(found.type)]
    inner = {place.removeprefix("."): step for place, step in held if step is not None}
    if not inner:
        return
    if hasattr(found.type, "item_type"):
        yield partial(_change_entries, inner["[]"])
    elif isinstance(found.type, inspect.DictType):
        yield partial(_change_values, inner["{}"])
    elif isinstance(found.type, inspect.TupleType | inspect.NamedTupleType) or getattr(found.type, "array_like", False):
        raise RequestInvalid("$", "amounts and moments must not be in tuples")
    else:
        yield partial(_change_members, inner)


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
    """Do a step with what stands at *key*; each level puts its own place in front once something is rejected."""
    try:
        return step(value)
    except RequestInvalid as error:
        raise below(f"[{key}]" if isinstance(key, int) else f".{key}", error) from None


def below(place: str, error: RequestInvalid) -> RequestInvalid:
    """Return *error* with *place* in front of its own: places are put together from the inside out."""
    return RequestInvalid(place + error.path, error.reason, error.rule)
