"""Compile the encoder of one message in one version.

The generated function packs runs of fixed-size fields, together with the length that follows them, by one call of
`struct`, and passes the parts to `write`. Record bytes go to `attach`, uncopied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tidelog.errors import ProtocolError, UnsupportedVersionError
from tidelog.model import Buffer, StoredBytes
from tidelog.protocol.kafka.generated_function import GeneratedFunction
from tidelog.protocol.kafka.primitives import MAX_STRING_BYTES, write_tagged_fields, write_uvarint
from tidelog.protocol.kafka.schema import (
    Array,
    Bytes,
    EncodedArray,
    Field,
    Fixed,
    Nested,
    Records,
    Struct,
    Text,
    WireType,
    fields_of,
)

Encoder = Callable[[Any, Callable[[bytes], None], Callable[[Buffer | StoredBytes], None]], None]
"""Passes the bytes of a value part by part to the first function, but record bytes to the second."""

#: The errors of a generated encoder for a number out of range, and for text that UTF-8 does not allow.
UNENCODABLE = (struct.error, UnicodeEncodeError)


def compile_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """Return the function that encodes this class in this version.

    Its errors are UnsupportedVersionError for a field that the version lacks, ProtocolError and `UNENCODABLE`.
    """
    return _EncoderSource(cls.__name__, version, flexible).function(Nested(cls))


def _null_error(path: str) -> ProtocolError:
    return ProtocolError(f"{path}: null is not allowed in this version")


def _size_error(path: str, size: int) -> ProtocolError:
    return ProtocolError(f"{path}: {size} bytes, but at most {MAX_STRING_BYTES} are allowed")


_CONSTANTS = {
    "null_error": _null_error,
    "size_error": _size_error,
    "pack": struct.pack,
    "write_uvarint": write_uvarint,
    "write_tagged_fields": write_tagged_fields,
    "EncodedArray": EncodedArray,
    "ProtocolError": ProtocolError,
    "UnsupportedVersionError": UnsupportedVersionError,
}


class _EncoderSource:
    """The source of a generated encoder."""

    def __init__(self, title: str, version: int, flexible: bool) -> None:
        self._title = title
        self._version = version
        self._flexible = flexible
        self._run: list[tuple[str, str]] = []  # formats and values of the fixed-size fields that are written next
        self._code = GeneratedFunction(
            "encode(value, write, attach)", f"<encoder of {title} version {version}>", _CONSTANTS
        )

    def function(self, type_: WireType, nullable: bool = False) -> Encoder:
        self._write(type_, "value", nullable, False, self._title)
        self._flush()
        encoder: Encoder = self._code.compiled()
        return encoder

    def _pack(self, run: list[tuple[str, str]]) -> str:
        """Return the expression of the bytes of these fields."""
        form = struct.Struct(">" + "".join(format_ for format_, _ in run))
        return f"{self._code.constant('P', form.pack)}({', '.join(value for _, value in run)})"

    def _flush(self) -> None:
        """Write the pending run of fixed-size fields."""
        if self._run:
            self._code.add(f"write({self._pack(self._run)})")
            self._run.clear()

    def _length(self, format_: str, length: str) -> None:
        """Write everything up to and with a length. Null has the length −1."""
        if not self._flexible:
            self._run.append((format_, length))
            self._flush()
            return
        self._code.add(f"if {length} < 127: write({self._pack([*self._run, ('B', f'{length} + 1')])})")
        with self._code.block("else:"):
            self._flush()
            self._code.add(f"write(write_uvarint({length} + 1))")

    def _write(self, type_: WireType, value: str, nullable: bool, optional: bool, path: str) -> None:
        """Write the value of an expression."""
        if "." in value and (optional or not isinstance(type_, Fixed)):
            name = self._code.name("v")
            self._code.add(f"{name} = {value}")
            value = name
        if optional and not nullable:
            self._code.add(f"if {value} is None: raise null_error({path!r})")
        match type_:
            case Fixed(format_):
                if format_ == "16s":
                    self._code.add(f"if len({value}) != 16: raise ProtocolError('{path}: a UUID has 16 bytes')")
                self._run.append((format_, value))
            case Nested(cls):
                write = self._write_nullable_struct if nullable else self._write_struct
                write(cls, value, path)
            case Array(item):
                self._write_array(item, value, nullable, path)
            case Text():
                data, length = self._code.name("data"), self._code.name("n")
                self._data(f"{data} = {value}.encode()", value, nullable, data, length)
                if self._flexible:
                    self._code.add(f"if {length} > {MAX_STRING_BYTES}: raise size_error({path!r}, {length})")
                self._length("h", length)
                self._code.add(f"write({data})")
            case Bytes() | Records():
                data, length = self._code.name("data"), self._code.name("n")
                self._data(f"{data} = {value}", value, nullable, data, length)
                self._length("i", length)
                self._code.add(f"if {length} > 0: attach({data})" if isinstance(type_, Records) else f"write({data})")

    def _data(self, assignment: str, value: str, nullable: bool, data: str, length: str) -> None:
        """Assign the bytes of a field and their length."""
        if nullable:
            self._code.add(f"if {value} is None: {data} = b''; {length} = -1")
            self._code.add(f"else: {assignment}; {length} = len({data})")
        else:
            self._code.add(f"{assignment}; {length} = len({data})")

    def _write_array(self, item: WireType, value: str, nullable: bool, path: str) -> None:
        length = self._code.name("n")
        size = f"-1 if {value} is None else len({value})" if nullable else f"len({value})"
        self._code.add(f"{length} = {size}")
        self._length("i", length)
        with self._code.block(f"if {length} > 0:") if nullable else nullcontext():
            if isinstance(item, Fixed) and item.format in "bhiq":
                self._code.add(f"write(pack(f'>{{{length}}}{item.format}', *{value}))")
                return
            if isinstance(item, Nested):
                self._code.add(f"if type({value}) is EncodedArray:")
                self._code.add(f"    for part in {value}.parts: write(part)")
                self._code.add(f"    {value} = ()")
            element = self._code.name("each")
            with self._code.block(f"for {element} in {value}:"):
                self._write(item, element, False, False, path)
                self._flush()

    def _write_nullable_struct(self, cls: type[Struct], value: str, path: str) -> None:
        self._flush()
        self._code.add(f"if {value} is None: write(b'\\xff')")
        with self._code.block("else:"):
            self._run.append(("b", "1"))
            self._write_struct(cls, value, path)
            self._flush()

    def _write_struct(self, cls: type[Struct], value: str, path: str) -> None:
        for each in fields_of(cls):
            field = f"{value}.{each.name}"
            if self._version not in each.versions:
                self._refuse(each, field, f"{path}.{each.name}")
            elif each.tag is None:
                null = self._version in each.nullable
                self._write(each.type, field, null, each.optional, f"{path}.{each.name}")
        if self._flexible:
            known = [each for each in fields_of(cls) if self._version in each.versions and each.tag is not None]
            self._write_tags(known, value, path)

    def _refuse(self, field: Field, value: str, path: str) -> None:
        """Refuse a value that this version cannot carry and that must not be dropped."""
        if not field.ignorable:
            default = self._code.constant("default", field.default)
            text = f"{path}: version {self._version} lacks this field"
            self._code.add(f"if {self._differs(value, default)}: raise UnsupportedVersionError({text!r})")

    def _differs(self, value: str, default: str) -> str:
        """Return the condition under which a value is not its default."""
        # Nearly all values are the default itself, which costs less to find out than equality of structures.
        name = self._code.name("v")
        return f"({name} := {value}) is not {default} and {name} != {default}"

    def _write_tags(self, tagged: list[Field], value: str, path: str) -> None:
        if not tagged:
            self._run.append(("B", "0"))
            return
        self._flush()
        found = self._code.name("tags")
        self._code.add(f"{found} = []")
        for each in sorted(tagged, key=lambda field: field.tag or 0):
            default = self._code.constant("default", each.default)
            source = _EncoderSource(f"{path}.{each.name}", self._version, self._flexible)
            encode = self._code.constant("encode", source.function(each.type, self._version in each.nullable))
            parts = self._code.name("parts")
            self._code.add(f"if {self._differs(f'{value}.{each.name}', default)}:")
            self._code.add(f"    {parts} = []; {encode}({value}.{each.name}, {parts}.append, attach)")
            self._code.add(f"    {found}.append(({each.tag}, b''.join({parts})))")
        self._code.add(f"write(write_tagged_fields({found}) if {found} else b'\\0')")
