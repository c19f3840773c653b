"""A file system in memory that knows what is on the disk and what only the page cache holds.

    files = CrashableFiles()
    log = Log.open(Path("/data/orders-0"), config(), files, recovery_point=0, clean=False)
    ...
    after = files.crash(Random(7))      # the machine lost power: a new file system with what a disk may hold then
    after = files.crash(FORGOTTEN)      # nothing was kept that was not synced
    after = files.crash(KEPT)           # only the process was killed: the page cache survived

`crash` decides by itself for each file and each directory; it takes a `random.Random` (a seeded one, or hypothesis'
`st.randoms()`) and may be called many times. To cut at every boundary of a piece of work:

    for cut in itertools.count():
        files = CrashableFiles(cut=cut)
        try:
            work(files)
        except PowerCut:
            check(files.crash(random))
        else:
            break                       # `cut` is past the last call that changes something

or, many times cheaper, since the work is done once:

    files.boundary = lambda: images.append(files.crash(random))    # called within every such call

The call number `cut` (from 0) among those that change something does not return, and neither does any later call of
any thread; of what it would have done any part may be on the disk. `PowerCut` is no Exception, so that nothing that
handles errors handles it. A `replace` has one boundary for each of its steps.

The model, as pessimistic as POSIX allows and file systems are:
- A file's content is on the disk when `sync` returned; its *name* when `sync_directory` of its directory did.
- Of names in one directory that are not synced a prefix of the changes survives (journals keep their order), in each
  directory another one. A rename is atomic.
- Of writes to one file that are not synced survive: all; none; a prefix, the last one torn at a byte; or any of the
  512-byte sectors, zeros (or what was there before) in between, up to any size the file had since. Files do not wait
  for each other.
- A truncation is a change of the journal too: what was written to the file after it survives only together with it,
  and so do later changes of names in its directory.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import NamedTuple

from storage.files import File, Files, Lock
from tidelog.errors import StorageError
from tidelog.model import Buffer

_SECTOR = 512


class PowerCut(BaseException):
    """The machine is off."""


class Fate(Enum):
    """What becomes of all that was not synced."""

    KEPT = "kept"
    FORGOTTEN = "forgotten"


KEPT, FORGOTTEN = Fate.KEPT, Fate.FORGOTTEN


class _Change(NamedTuple):
    """A write of `data` at `position`, or with None a truncation to it. `order`: its number in the journal."""

    position: int
    data: bytes | None
    order: int = 0

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.position :]
            content.extend(bytes(self.position - len(content)))
        elif self.data:
            content.extend(bytes(max(self.position - len(content), 0)))
            content[self.position : self.position + len(self.data)] = self.data


@dataclass(slots=True)
class _Content:
    """A file without its name: what readers see, what is on the disk, and the changes between the two."""

    seen: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)
    modified_ms: int = 0
    #: How many of the changes the kernel gave up after a failed sync: no later sync brings them to the disk.
    lost: int = 0

    def change(self, change: _Change) -> None:
        change.apply(self.seen)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes[self.lost :]:
            change.apply(self.synced)
        self.changes.clear()
        self.lost = 0

    def flip(self, position: int, bits: int) -> None:
        """The disk and the page cache have other bits there than were written."""
        for content in (self.seen, self.synced):
            if position < len(content):
                content[position] ^= bits
        for index, (start, data, order) in enumerate(self.changes):
            if data is not None and start <= position < start + len(data):
                flipped = bytearray(data)
                flipped[position - start] ^= bits
                self.changes[index] = _Change(start, bytes(flipped), order)

    def after_crash(self, choice: Random | Fate, order: int) -> bytes:
        """The journal is on the disk up to `order` at least."""
        changes = self.changes[self.lost :]
        if choice is KEPT:
            return bytes(self.seen)
        content = bytearray(self.synced)
        cut = max(
            (i + 1 for i, change in enumerate(changes) if change.data is None and change.order <= order), default=0
        )
        for change in changes[:cut]:
            if change.data is None:
                del content[change.position :]
        changes = changes[cut:]
        if not changes or choice is FORGOTTEN:
            return bytes(content)
        assert isinstance(choice, Random)
        match choice.choice(("all", "none", "prefix", "sectors", "size")):
            case "all":
                for change in changes:
                    change.apply(content)
            case "prefix":
                kept = choice.randrange(len(changes))
                for change in changes[:kept]:
                    change.apply(content)
                _torn(changes[kept], choice).apply(content)
            case "sectors":
                _scatter(content, changes, choice, always_lost=False)
            case "size":
                _scatter(content, changes, choice, always_lost=True)
        return bytes(content)


def _torn(change: _Change, choice: Random) -> _Change:
    if change.data is None:
        return change
    kept = choice.randint(0, len(change.data))
    if choice.random() < 0.5:
        kept -= (change.position + kept) % _SECTOR
    return _Change(change.position, change.data[: max(kept, 0)])


def _scatter(content: bytearray, changes: list[_Change], choice: Random, *, always_lost: bool) -> None:
    """Up to some truncation all is kept, and of the writes that follow it any sectors."""
    truncations = [index + 1 for index, change in enumerate(changes) if change.data is None]
    start = choice.choice([0, *truncations])
    for change in changes[:start]:
        change.apply(content)
    end = next((index for index in range(start, len(changes)) if changes[index].data is None), len(changes))
    whole = bytearray(content)
    sizes = [len(content)]
    for change in changes[start:end]:
        change.apply(whole)
        sizes.append(len(whole))
    content.extend(bytes(len(whole) - len(content)))
    for sector in range(0, len(whole), _SECTOR):
        if not always_lost and choice.random() < 0.5:
            content[sector : sector + _SECTOR] = whole[sector : sector + _SECTOR]
    del content[choice.choice(sizes) :]


@dataclass(slots=True)
class _Directory:
    """Names, and the states that they went through since they were last synced, the first of which is on the disk."""

    names: dict[str, _Content | _Directory] = field(default_factory=dict)
    states: list[tuple[int, dict[str, _Content | _Directory]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sync(0)

    def changed(self, order: int) -> None:
        self.states.append((order, dict(self.names)))

    def sync(self, order: int) -> None:
        self.states = [(order, dict(self.names))]

    def after_crash(self, choice: Random | Fate) -> _Directory:
        last = len(self.states) - 1
        match choice:
            case Fate.KEPT:
                order, names = self.states[last]
            case Fate.FORGOTTEN:
                order, names = self.states[0]
            case _:
                order, names = self.states[choice.choice((0, last, choice.randint(0, last)))]
        survived: dict[str, _Content | _Directory] = {}
        for name, entry in names.items():
            if isinstance(entry, _Directory):
                survived[name] = entry.after_crash(choice)
            else:
                content = entry.after_crash(choice, order)
                survived[name] = _Content(bytearray(content), bytearray(content), modified_ms=entry.modified_ms)
        return _Directory(survived)


class CrashableFiles:
    """`Files` in memory. `cut`: the number of the first call that does not return; None for never."""

    def __init__(self, cut: int | None = None) -> None:
        self.cut = cut
        #: Calls so far that changed something, as "verb name": what a cut can hit.
        self.mutations: list[str] = []
        #: Called within each of them, when its work is done in the page cache but nothing is synced yet.
        self.boundary: Callable[[], object] = lambda: None
        self._root = _Directory()
        self._locked: set[Path] = set()
        self._mutex = threading.RLock()

    def crash(self, choice: Random | Fate) -> CrashableFiles:
        """What is on the disk when the power comes back."""
        after = CrashableFiles()
        with self._mutex:
            after._root = self._root.after_crash(choice)
        return after

    def lose(self, path: Path) -> None:
        """A sync of the file failed: readers may still see its unsynced writes, the disk never will."""
        content = self._entry(path)
        if isinstance(content, _Content):
            content.lost = len(content.changes)

    def flip(self, path: Path, position: int, bits: int = 1) -> None:
        """Other bits are read there from now on, whatever was synced. StorageError where there is no such file."""
        with self._mutex:
            content = self.content(path, create=False)
            if position >= len(content.seen):
                raise ValueError(f"{path} ends before byte {position}")
            content.flip(position, bits)

    def paths(self, directory: Path = Path("/")) -> list[Path]:
        """All files below it, in the order of their names."""
        found: list[Path] = []
        for name in self.names(directory):
            path = directory / name
            found += self.paths(path) if self.is_directory(path) else [path]
        return found

    def unsynced(self, path: Path) -> bool:
        """Whether a power failure could change the content of the file."""
        content = self._entry(path)
        return isinstance(content, _Content) and bool(content.changes)

    def mutate(self, verb: str, path: Path) -> None:
        """Counts a call that changes something, and cuts the power where it is due."""
        self.alive()
        self.mutations.append(f"{verb} {path.name}")

    def alive(self) -> None:
        if self.cut is not None and len(self.mutations) > self.cut:
            raise PowerCut

    def finish(self) -> None:
        """The end of such a call: the one that is cut has done its work in the page cache, but nobody is told."""
        self.alive()
        self.boundary()

    # --- Files ---------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = True) -> File:
        return CrashableFile(self, path, create=create)

    def exists(self, path: Path) -> bool:
        with self._mutex:
            self.alive()
            return self._entry(path) is not None

    def is_directory(self, path: Path) -> bool:
        with self._mutex:
            self.alive()
            return isinstance(self._entry(path), _Directory)

    def names(self, directory: Path) -> list[str]:
        with self._mutex:
            self.alive()
            entry = self._entry(directory)
            return sorted(entry.names) if isinstance(entry, _Directory) else []

    def read(self, path: Path) -> bytes | None:
        with self._mutex:
            self.alive()
            entry = self._entry(path)
            if isinstance(entry, _Directory):
                raise _error(path, errno.EISDIR)
            return bytes(entry.seen) if entry is not None else None

    def replace(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        with self._mutex:
            draft = path.with_name(path.name + ".tmp")
            file = CrashableFile(self, draft)
            file.truncate(0)
            file.write(0, (data,))
            if sync:
                file.sync()
            self.rename(draft, path)
            if sync:
                self.sync_directory(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "the model knows no renames from one directory to another"
        with self._mutex:
            self.mutate("rename", new)
            directory = self._directory(old.parent)
            entry = directory.names.get(old.name)
            if entry is None:
                raise _error(old, errno.ENOENT)
            target = directory.names.get(new.name)
            if isinstance(target, _Directory) and target.names:
                raise _error(old, errno.ENOTEMPTY)
            del directory.names[old.name]
            directory.names[new.name] = entry
            directory.changed(len(self.mutations))
            self.finish()

    def remove(self, path: Path) -> None:
        with self._mutex:
            self.mutate("remove", path)
            parent = self._entry(path.parent)
            if isinstance(parent, _Directory) and path.name in parent.names:
                del parent.names[path.name]
                parent.changed(len(self.mutations))
            self.finish()

    def remove_directory(self, path: Path) -> None:
        with self._mutex:
            entry = self._entry(path)
            if not isinstance(entry, _Directory):
                return
            for name, child in sorted(entry.names.items()):
                if isinstance(child, _Directory):
                    self.remove_directory(path / name)
                else:
                    self.remove(path / name)
            self.remove(path)

    def make_directory(self, path: Path) -> None:
        with self._mutex:
            self.alive()
            if isinstance(self._entry(path), _Directory):
                return
            if path.parent != path:
                self.make_directory(path.parent)
            self.mutate("mkdir", path)
            parent = self._directory(path.parent)
            if path.name in parent.names:
                raise _error(path, errno.EEXIST)
            parent.names[path.name] = _Directory()
            parent.changed(len(self.mutations))
            self.finish()

    def sync_directory(self, path: Path) -> None:
        with self._mutex:
            self.mutate("sync", path)
            directory = self._directory(path)
            self.finish()
            directory.sync(len(self.mutations))

    def try_lock(self, path: Path) -> Lock | None:
        with self._mutex:
            self.content(path)
            if path in self._locked:
                return None
            self._locked.add(path)
            return _CrashableLock(self._locked, path)

    # --- inside --------------------------------------------------------------------------------------

    def content(self, path: Path, *, create: bool = True) -> _Content:
        """The file of this name; created where it is missing, or StorageError without `create`."""
        self.alive()
        directory = self._directory(path.parent)
        entry = directory.names.get(path.name)
        if isinstance(entry, _Directory):
            raise _error(path, errno.EISDIR)
        if entry is None and not create:
            raise _error(path, errno.ENOENT)
        if entry is None:
            self.mutate("create", path)
            entry = directory.names[path.name] = _Content()
            directory.changed(len(self.mutations))
            self.finish()
        return entry

    def _directory(self, path: Path) -> _Directory:
        entry = self._entry(path)
        if not isinstance(entry, _Directory):
            raise _error(path, errno.ENOENT)
        return entry

    def _entry(self, path: Path) -> _Content | _Directory | None:
        entry: _Content | _Directory | None = self._root
        for part in path.parts[1:] if path.is_absolute() else path.parts:
            if not isinstance(entry, _Directory):
                return None
            entry = entry.names.get(part)
        return entry


class CrashableFile:
    """`File` of a CrashableFiles. An open one stays with its content when the name is given away."""

    def __init__(self, files: CrashableFiles, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._files = files
        self._create = create
        self._content: _Content | None = None

    def size(self) -> int:
        with self._files._mutex:
            return len(self._opened().seen)

    def modified_ms(self) -> int:
        with self._files._mutex:
            return self._opened().modified_ms

    def set_modified_ms(self, timestamp_ms: int) -> None:
        with self._files._mutex:
            self._opened().modified_ms = timestamp_ms

    def read(self, position: int, count: int) -> bytes:
        with self._files._mutex:
            return bytes(self._opened().seen[position : position + count])

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        with self._files._mutex:
            content = self._opened()
            self._files.mutate("write", self.path)
            content.change(_Change(position, b"".join(parts)))
            self._files.finish()

    def truncate(self, size: int) -> None:
        with self._files._mutex:
            content = self._opened()
            if size == len(content.seen):
                return
            self._files.mutate("truncate", self.path)
            content.change(_Change(size, None, len(self._files.mutations)))
            self._files.finish()

    def sync(self) -> None:
        with self._files._mutex:
            self._files.mutate("sync", self.path)
            self._files.finish()
            content = self._files._entry(self.path)  # by its name, as the real one: nothing is synced that is gone
            if isinstance(content, _Content):
                content.sync()

    def close(self) -> None:
        self._content = None

    def _opened(self) -> _Content:
        self._files.alive()
        if self._content is None:
            self._content = self._files.content(self.path, create=self._create)
        return self._content


class _CrashableLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


def _error(path: Path, number: int) -> StorageError:
    return StorageError(f"{path}: {os.strerror(number)}")


_: Files = CrashableFiles()
