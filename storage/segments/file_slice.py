"""Consecutive bytes of a segment's file that are not read yet, so that they can be sent without a copy."""

from __future__ import annotations

from collections.abc import Callable

from storage.files import File
from tidelog.errors import StorageError


class FileSlice:
    """`tidelog.model.StoredBytes` of a file: `size` bytes from `position` on, until the file is truncated or closed.

    `on_failure` is called with each StorageError before it is raised.
    """

    __slots__ = ("_file", "_on_failure", "_position", "_size")

    def __init__(self, file: File, position: int, size: int, on_failure: Callable[[StorageError], None]) -> None:
        self._file = file
        self._on_failure = on_failure
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, begin: int = 0) -> bytes:
        try:
            data = self._file.read(self._position + begin, self._size - begin)
            if len(data) < self._size - begin:
                raise StorageError(f"{self._file.path}: the file ends before position {self._position + self._size}")
        except StorageError as error:
            self._on_failure(error)
            raise
        return data

    def send(self, socket: int, begin: int = 0) -> int:
        try:
            return self._file.send(self._position + begin, self._size - begin, socket)
        except StorageError as error:
            self._on_failure(error)
            raise
