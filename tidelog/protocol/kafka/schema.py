"""Describe the wire format of Kafka's messages by the annotations of their classes.

A message is a dataclass for all versions of its API. A field's type is one of the types below, `str`, `bytes`, `bool`,
a nested structure, or a tuple of one of these. `Annotated[…, wire("4+")]` says in which versions the field exists. In
other versions a decoded field has its default, and encoding another value is an error unless the field is ignorable.
A type with `| None` is nullable in all versions of its field, unless `wire` names the versions.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from tidelog.model import Buffer, StoredBytes

T = TypeVar("T")


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse "3+", "0-12" or "1", as Kafka's message definitions write them; "none" is an empty range."""
        if text == "none":
            return NO_VERSION
        first, dash, last = text.rstrip("+").partition("-")
        if text.endswith("+"):
            return cls(int(first), _NEWEST)
        return cls(int(first), int(last) if dash else int(first))


_NEWEST = 32767
ALL_VERSIONS = Versions(0, _NEWEST)
NO_VERSION = Versions(0, -1)


class Fixed(NamedTuple):
    """A type of a fixed size, with its format for `struct`."""

    format: str


class Records(NamedTuple):
    """The type of record bytes, which are neither copied nor interpreted."""


Int8 = Annotated[int, Fixed("b")]
Int16 = Annotated[int, Fixed("h")]
Int32 = Annotated[int, Fixed("i")]
Int64 = Annotated[int, Fixed("q")]
Uuid = Annotated[bytes, Fixed("16s")]
#: Only messages that are sent may have stored bytes.
RecordBytes = Annotated[Buffer | StoredBytes, Records()]


class EncodedArray:
    """Elements of an array of structures that are encoded already, as the message and the version have them.

    A message that is only sent may have this in place of a tuple of elements. `parts` together are the bytes of `count`
    elements.
    """

    __slots__ = ("_count", "parts")

    def __init__(self, count: int, parts: Iterable[bytes]) -> None:
        self._count = count
        self.parts = parts

    def __len__(self) -> int:
        return self._count


class Wire(NamedTuple):
    """The presence of a field on the wire. `nullable` is None if it follows from the field's type."""

    versions: Versions = ALL_VERSIONS
    nullable: Versions | None = None
    tag: int | None = None
    ignorable: bool = False


def wire(versions: str = "0+", *, nullable: str | None = None, tag: int | None = None, ignorable: bool = False) -> Wire:
    """Return the annotation of a field: its versions, those that allow null, and its tag if it is a tagged field.

    In versions without the field, a value of an `ignorable` field is dropped; for other fields it is an error.
    """
    return Wire(Versions.parse(versions), None if nullable is None else Versions.parse(nullable), tag, ignorable)


class Struct:
    """Base class of messages and of the structures in them. Equality, hash and text are those of the fields."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(self))
        return f"{type(self).__name__}({shown})"


def _values(struct: Struct) -> tuple[Any, ...]:
    return tuple([getattr(struct, name) for name in _names(struct)])


def _names(struct: Struct) -> tuple[str, ...]:
    names: dict[str, object] = type(struct).__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
    return tuple(names)


class Message(Struct):
    """Base class of requests and responses.

    api             the number of the API
    valid           the versions that this code supports
    flexible_from   the first version with compact lengths and tagged fields (KIP-482); None if no version has them
    """

    __slots__ = ()
    api: ClassVar[int]
    valid: ClassVar[Versions]
    flexible_from: ClassVar[int | None]


class Response(Message):
    """Base class of responses."""

    __slots__ = ()


class Request(Message):
    """Base class of requests, with the class of their response."""

    __slots__ = ()
    response: ClassVar[type[Response]]


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def structure(cls: type[T]) -> type[T]:
    """Make the class a dataclass with slots and keyword arguments, whose fields only the type checker protects.

    Equality and text are inherited, because generating them for each class doubles the time of importing it.
    """
    return dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)


class Text(NamedTuple):
    """The type of strings."""


class Bytes(NamedTuple):
    """The type of byte strings."""


class Array(NamedTuple):
    """The type of arrays."""

    item: WireType


class Nested(NamedTuple):
    """The type of nested structures."""

    struct: type[Struct]


WireType = Fixed | Records | Text | Bytes | Array | Nested


class Field(NamedTuple):
    """One field of a structure. `optional` says that its Python type includes None."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    optional: bool
    default: Any


_fields: dict[type[Struct], tuple[Field, ...]] = {}


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """Return the fields of a structure in the order of the wire."""
    if cls not in _fields:
        hints = get_type_hints(cls, include_extras=True)
        listed = fields(cls)  # type: ignore[arg-type]  # every structure is a dataclass
        _fields[cls] = tuple(_field(f.name, hints[f.name], None if f.default is MISSING else f.default) for f in listed)
    return _fields[cls]


def has_records(cls: type[Struct]) -> bool:
    """Return whether the structure, or one inside it, has record bytes."""
    items = [each.type.item if isinstance(each.type, Array) else each.type for each in fields_of(cls)]
    return any(isinstance(item, Records) or (isinstance(item, Nested) and has_records(item.struct)) for item in items)


def _field(name: str, hint: Any, default: Any) -> Field:
    known = Wire()
    if get_origin(hint) is Annotated and isinstance(hint.__metadata__[-1], Wire):
        known = hint.__metadata__[-1]
        kept = hint.__metadata__[:-1]
        hint = Annotated[(hint.__origin__, *kept)] if kept else hint.__origin__
    optional = False
    if get_origin(hint) in (Union, types.UnionType):
        members = [each for each in get_args(hint) if each is not types.NoneType]
        assert len(members) == 1, f"{name}: only a type with None may be a union"
        optional, hint = True, members[0]
    nullable = known.versions if optional and known.nullable is None else known.nullable or NO_VERSION
    return Field(name, _type(hint), known.versions, nullable, known.tag, known.ignorable, optional, default)


def _type(hint: Any) -> WireType:
    if get_origin(hint) is Annotated:
        known: Fixed | Records = hint.__metadata__[0]
        return known
    if get_origin(hint) is tuple:
        return Array(_type(get_args(hint)[0]))
    if isinstance(hint, type) and issubclass(hint, Struct):
        return Nested(hint)
    simple: dict[Any, WireType] = {str: Text(), bytes: Bytes(), bool: Fixed("?")}
    return simple[hint]
