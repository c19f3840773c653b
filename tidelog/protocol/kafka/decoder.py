"""Compile the decoder of one message in one version.

The generated function reads runs of fixed-size fields, together with the first byte of the length that follows them,
by one call of `struct`. Arrays and nested structures are read in place without further calls. Each length is compared
with the bytes that are left before anything is allocated.

    def decode(data, p):                                   # HeartbeatRequest, version 4
        n1, = S_1(data, p); p += 1                         # the length of group_id
        …
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tidelog.errors import ProtocolError
from tidelog.protocol.kafka.generated_function import GeneratedFunction
from tidelog.protocol.kafka.primitives import (
    MAX_STRING_BYTES,
    length_error,
    read_tagged_fields,
    read_uvarint,
    skip_tagged_fields,
)
from tidelog.protocol.kafka.schema import (
    Array,
    Bytes,
    Field,
    Fixed,
    Nested,
    Records,
    Request,
    Struct,
    Text,
    WireType,
    fields_of,
)

Decoder = Callable[[Any, int], tuple[Any, int]]
"""Returns the value at a position of bytes or of a memoryview, and the position after it."""

#: The errors of a generated decoder for data that ends inside a field, or is not UTF-8.
MALFORMED = (struct.error, IndexError, UnicodeDecodeError)


#: Maximum elements of all arrays of one request, except arrays of numbers, together with its tagged fields. An element
#: takes about a microsecond and up to a hundred times its bytes.
MAX_REQUEST_ELEMENTS = 65_536


def compile_decoder(cls: type[Struct], version: int, flexible: bool, as_view: bool) -> Decoder:
    """Return the function that decodes this class in this version. Its errors are ProtocolError and `MALFORMED`.

    The function takes a memoryview if `as_view`, else bytes, of which it takes strings in half the time.
    """
    is_bounded = issubclass(cls, Request)
    return _DecoderSource(cls.__name__, version, flexible, as_view, is_bounded).function(Nested(cls))


_CONSTANTS = {
    "length_error": length_error,
    "skip_tagged_fields": skip_tagged_fields,
    "read_tagged_fields": read_tagged_fields,
    "read_uvarint": read_uvarint,
    "ProtocolError": ProtocolError,
    "MAX_ELEMENTS": MAX_REQUEST_ELEMENTS,
    "unpack_from": struct.unpack_from,
}


class _DecoderSource:
    """The source of a generated decoder. Names ending with a number are local variables of one value each."""

    def __init__(self, title: str, version: int, flexible: bool, as_view: bool, is_bounded: bool) -> None:
        self._title = title
        self._version = version
        self._flexible = flexible
        self._as_view = as_view
        self._is_bounded = is_bounded
        self._run: list[tuple[str, str]] = []  # formats and variables of the fixed-size fields that are read next
        self._code = GeneratedFunction("decode(data, p)", f"<decoder of {title} version {version}>", _CONSTANTS)

    def function(self, type_: WireType, nullable: bool = False) -> Decoder:
        self._code.add("end = len(data)")
        if self._is_bounded:
            self._code.add("elements = 0")
        value = self._read(type_, nullable, self._title)
        self._flush()
        self._code.add(f"return {value}, p")
        decoder: Decoder = self._code.compiled()
        return decoder

    def _fixed(self, format_: str) -> str:
        value = self._code.name("v")
        self._run.append((format_, value))
        return value

    def _flush(self) -> None:
        """Read the pending run of fixed-size fields."""
        if not self._run:
            return
        if [format_ for format_, _ in self._run] == ["B"]:
            self._code.add(f"{self._run[0][1]} = data[p]; p += 1")
        else:
            form = struct.Struct(">" + "".join(format_ for format_, _ in self._run))
            unpack = self._code.constant("U", form.unpack_from)
            self._code.add(f"{', '.join(name for _, name in self._run)}, = {unpack}(data, p); p += {form.size}")
        self._run.clear()

    def _length(self, format_: str) -> str:
        """Read a length, and everything before it. Null has the length −1."""
        length = self._fixed("B" if self._flexible else format_)
        self._flush()
        if self._flexible:
            self._code.add(f"if {length} > 127: {length}, p = read_uvarint(data, p - 1)")
            self._code.add(f"{length} -= 1")
        return length

    def _read(self, type_: WireType, nullable: bool, path: str) -> str:
        """Read one value and return its variable, which is assigned when the pending run has been read."""
        match type_:
            case Fixed(format_):
                return self._fixed(format_)
            case Nested(cls):
                return self._read_nullable_struct(cls, path) if nullable else self._read_struct(cls, path)
            case Array(item):
                return self._read_array(item, nullable, path)
            case Text():
                text = "str(data[p:e], 'utf-8')" if self._as_view else "data[p:e].decode()"
                return self._read_data(self._length("h"), nullable, path, text, MAX_STRING_BYTES)
            case Bytes():
                copy = "bytes(data[p:e])" if self._as_view else "data[p:e]"
                return self._read_data(self._length("i"), nullable, path, copy)
            case Records():
                return self._read_data(self._length("i"), nullable, path, "data[p:e]")

    def _read_data(self, length: str, nullable: bool, path: str, value: str, maximum: int | None = None) -> str:
        target = self._code.name("v")
        limit = f" or {length} > {maximum}" if maximum else ""
        with self._unless_null(length, nullable, target):
            self._code.add(f"if not 0 <= {length} <= end - p{limit}: raise length_error({path!r}, {length}, end - p)")
            self._code.add(f"e = p + {length}; {target} = {value}; p = e")
        return target

    def _unless_null(self, length: str, nullable: bool, target: str) -> AbstractContextManager[None]:
        """Assign None to the target if the length is −1. Lines that are added in this context are for other lengths."""
        if not nullable:
            return nullcontext()
        self._code.add(f"if {length} == -1: {target} = None")
        return self._code.block("else:")

    def _read_array(self, item: WireType, nullable: bool, path: str) -> str:
        length, target = self._length("i"), self._code.name("v")
        with self._unless_null(length, nullable, target):
            # Every element takes bytes, which bounds the number of elements before any of them is created.
            size = self._smallest(item)
            needed = length if size == 1 else f"{length} * {size}"
            self._code.add(f"if not 0 <= {needed} <= end - p: raise length_error({path!r}, {length}, end - p)")
            if isinstance(item, Fixed) and item.format in "bhiq":
                self._code.add(f"{target} = unpack_from(f'>{{{length}}}{item.format}', data, p); p += {needed}")
                return target
            items = self._code.name("items")
            self._count_elements(length)
            self._code.add(f"{items} = []")
            with self._code.block(f"for _ in range({length}):"):
                element = self._read(item, False, path)
                self._flush()
                self._code.add(f"{items}.append({element})")
            self._code.add(f"{target} = tuple({items})")
        return target

    def _count_elements(self, count: str) -> None:
        """Refuse a request with too many elements before they are read."""
        if self._is_bounded:
            self._code.add(f"elements += {count}")
            self._code.add("if elements > MAX_ELEMENTS: raise ProtocolError(f'more than {MAX_ELEMENTS} elements')")

    def _read_nullable_struct(self, cls: type[Struct], path: str) -> str:
        marker, target = self._fixed("b"), self._code.name("v")
        self._flush()
        self._code.add(f"if {marker} == -1: {target} = None")
        self._code.add(f"elif {marker} != 1: raise ProtocolError(f'{path}: a marker of {{{marker}}}')")
        with self._code.block("else:"):
            value = self._read_struct(cls, path)
            self._code.add(f"{target} = {value}")
        return target

    def _read_struct(self, cls: type[Struct], path: str) -> str:
        present = [each for each in fields_of(cls) if self._version in each.versions]
        values = {
            each.name: self._read(each.type, self._version in each.nullable, f"{path}.{each.name}")
            for each in present
            if each.tag is None
        }
        if self._flexible:
            values |= self._read_tags([each for each in present if each.tag is not None], path)
        self._flush()
        target, name = self._code.name("v"), self._code.constant(cls.__name__, cls)
        self._code.add(f"{target} = {name}({', '.join(f'{field}={value}' for field, value in values.items())})")
        return target

    def _read_tags(self, tagged: list[Field], path: str) -> dict[str, str]:
        """Read the tagged fields at the end of a structure, and skip those that this code does not know."""
        count = self._fixed("B")
        self._flush()
        if not tagged:
            with self._code.block(f"if {count}:"):
                self._count_elements(count)
                self._code.add("p = skip_tagged_fields(data, p - 1)")
            return {}
        values = {each.name: self._code.name("v") for each in tagged}
        for each in tagged:
            self._code.add(f"{values[each.name]} = {self._code.constant('default', each.default)}")
        with self._code.block(f"if {count}:"):
            self._count_elements(count)
            found = self._code.name("tags")
            self._code.add(f"{found}, p = read_tagged_fields(data, p - 1)")
            for each in tagged:
                title = f"{path}.{each.name}"
                source = _DecoderSource(title, self._version, self._flexible, self._as_view, self._is_bounded)
                decode = self._code.constant("decode", source.function(each.type, self._version in each.nullable))
                self._code.add(f"if {each.tag} in {found}:")
                self._code.add(f"    {values[each.name]}, e = {decode}({found}[{each.tag}], 0)")
                self._code.add(
                    f"    if e != len({found}[{each.tag}]): raise ProtocolError('{title}: more bytes than its value')"
                )
        return values

    def _smallest(self, type_: WireType) -> int:
        """Return the smallest number of bytes, at least 1, that a value of this type takes."""
        match type_:
            case Fixed(format_):
                return struct.calcsize(">" + format_)
            case Nested(cls):
                present = [f for f in fields_of(cls) if self._version in f.versions and f.tag is None]
                nullable = [f for f in present if isinstance(f.type, Nested) and self._version in f.nullable]
                sizes = [1 if f in nullable else self._smallest(f.type) for f in present]
                return max(1, sum(sizes) + self._flexible)
            case Text():
                return 1 if self._flexible else 2
            case Array() | Bytes() | Records():
                return 1 if self._flexible else 4
