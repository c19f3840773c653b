"""The model of a page cache: what readers see, what is on the disk, and what the disk may hold after a crash.

The model is as pessimistic as POSIX permits and real file systems are:

- A file's content is on the disk when `fsync` has returned, its *name* when `fsync_directory` of its directory has.
- Of the unsynced name changes in one directory a prefix survives, because journals keep their order. Each directory
  has its own prefix. A rename is atomic.
- Of the unsynced writes to one file survive: all; none; a prefix, the last write torn at a byte; or any of the 512-byte
  sectors, with zeros (or the old bytes) in between, up to any size that the file had since. Files are independent.
- A truncation is a change of the journal too. Later writes to the file survive only together with the truncation, and
  so do later changes of names in its directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple

_SECTOR = 512


class Fate(Enum):
    """The fate of all unsynced changes: all are kept, or all are lost."""

    KEPT = "kept"
    FORGOTTEN = "forgotten"


KEPT, FORGOTTEN = Fate.KEPT, Fate.FORGOTTEN


class Change(NamedTuple):
    """A write of `data` at `position`, or (`data` is None) a truncation to the size `position`.

    `order` is the truncation's number in the journal; 0 for a write.
    """

    position: int
    data: bytes | None
    order: int = 0

    def apply(self, content: bytearray) -> None:
        """Apply the change to this content. A gap before a write, or after a truncation to a greater size, becomes
        zeros.
        """
        if self.data is None:
            del content[self.position :]
            content.extend(bytes(self.position - len(content)))
        elif self.data:
            content.extend(bytes(max(self.position - len(content), 0)))
            content[self.position : self.position + len(self.data)] = self.data


@dataclass(slots=True)
class Content:
    """A file without its name: what readers see, what is on the disk, and the changes between the two.

    changes       the changes that are not on the disk, in order
    modified_ms   the modification time
    """

    seen: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)
    modified_ms: int = 0
    #: The number of changes that the kernel dropped after a failed sync. No later sync writes them to the disk.
    lost: int = 0

    def change(self, change: Change) -> None:
        """Apply a change to what readers see, and note that it is unsynced."""
        change.apply(self.seen)
        self.changes.append(change)

    def sync(self, count: int | None = None) -> None:
        """Write the first `count` unsynced changes (None: all) to the disk, except those that the kernel dropped.

        The count excludes changes made after the sync began.
        """
        began = len(self.changes) if count is None else min(count, len(self.changes))
        for change in self.changes[self.lost : began]:
            change.apply(self.synced)
        del self.changes[:began]
        self.lost = max(self.lost - began, 0)

    def flip(self, position: int, bits: int) -> None:
        """Flip bits of the byte at this position on the disk, in the page cache, and in unsynced writes."""
        for content in (self.seen, self.synced):
            if position < len(content):
                content[position] ^= bits
        for index, (start, data, order) in enumerate(self.changes):
            if data is not None and start <= position < start + len(data):
                flipped = bytearray(data)
                flipped[position - start] ^= bits
                self.changes[index] = Change(start, bytes(flipped), order)

    def after_crash(self, choice: Random | Fate, order: int) -> bytes:
        """Return a possible content of the disk after a crash.

        KEPT: what readers saw. FORGOTTEN: only what was synced. Otherwise `choice` decides about unsynced changes.
        Except with KEPT, truncations up to the journal's number `order` are on the disk, and unsynced writes before the
        last of these truncations are lost.
        """
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


def _torn(change: Change, choice: Random) -> Change:
    """Return the write with a random part of its bytes from the beginning, often up to a sector boundary."""
    if change.data is None:
        return change
    kept = choice.randint(0, len(change.data))
    if choice.random() < 0.5:
        kept -= (change.position + kept) % _SECTOR
    return Change(change.position, change.data[: max(kept, 0)])


def _scatter(content: bytearray, changes: list[Change], choice: Random, *, always_lost: bool) -> None:
    """Apply all changes up to a random truncation, and random sectors of the writes after it.

    `always_lost`: no sector, so that only the size may grow, with zeros.
    """
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
class Directory:
    """The names in a directory, and their states since the last sync.

    states   (order, names) after each change since the last sync; the first one is on the disk
    """

    names: dict[str, Content | Directory] = field(default_factory=dict)
    states: list[tuple[int, dict[str, Content | Directory]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sync(0)

    def changed(self, order: int) -> None:
        """Note a state: the present names, after the change with the journal's number `order`."""
        self.states.append((order, dict(self.names)))

    def sync(self, order: int, count: int | None = None) -> None:
        """Write the names to the disk, as they were in the last of the first `count` states; None: as in the last
        state.

        The count excludes changes made after the sync began. `order` is the sync's number in the journal.
        """
        states = self.states if count is None else self.states[:count]
        names = states[-1][1] if states else dict(self.names)
        self.states = [(order, names), *self.states[len(states) :]]

    def after_crash(self, choice: Random | Fate) -> Directory:
        """Return a possible directory after a crash, with all files and directories below it.

        KEPT: the last state. FORGOTTEN: the synced state. Otherwise `choice` chooses a state.
        """
        last = len(self.states) - 1
        match choice:
            case Fate.KEPT:
                order, names = self.states[last]
            case Fate.FORGOTTEN:
                order, names = self.states[0]
            case _:
                order, names = self.states[choice.choice((0, last, choice.randint(0, last)))]
        survived: dict[str, Content | Directory] = {}
        for name, entry in names.items():
            if isinstance(entry, Directory):
                survived[name] = entry.after_crash(choice)
            else:
                content = entry.after_crash(choice, order)
                survived[name] = Content(bytearray(content), bytearray(content), modified_ms=entry.modified_ms)
        return Directory(survived)
