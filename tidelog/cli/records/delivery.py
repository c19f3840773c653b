"""Sends the records of `tidelog produce`, and tracks the outcome of each line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from tidelog.cli.error_hints import next_step
from tidelog.cli.records.produce_summary import ProduceSummary
from tidelog.cli.records.record_lines import OutgoingRecord
from tidelog.errors import MessageTooLargeError, TidelogError, UnknownTopicOrPartitionError
from tidelog.quantities import count_of, format_count, plural

if TYPE_CHECKING:
    from tidelog.client.producer.producer import Producer
    from tidelog.client.producer.record_future import RecordRun

_INTERRUPTED_CLOSE_S = 2.0
_LARGER = " (tidelog topic create --config max.message.bytes=BYTES makes a topic for larger ones)"


class InputLine(NamedTuple):
    """The place of a line of the input: the file's name for users, and the line's number, counted from 1."""

    file: str
    line: int

    def after(self, lines: int) -> InputLine:
        """Return the place of the line that is `lines` lines later in the same file."""
        return InputLine(self.file, self.line + lines)

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


class UndeliveredLine(Exception):
    """A line could not be read or sent, or its record failed; the text has the place and the reason."""

    def __init__(self, place: InputLine, reason: str) -> None:
        super().__init__(f"{place}: {reason}")


class _Sent(NamedTuple):
    """Records of one partition that were sent together, with the line number and the size (key and value) of each."""

    run: RecordRun
    file: str
    lines: list[int]
    sizes_bytes: list[int]


class Delivery:
    """Sends lines in order to a topic, and raises UndeliveredLine for the first that cannot be delivered.

    partition   the partition of all records; None: by key, or as the record says
    summary   counts and offsets of the records that were acknowledged so far
    """

    def __init__(self, producer: Producer, topic: str, partition: int | None) -> None:
        self.summary = ProduceSummary(topic)
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._under_way: deque[_Sent] = deque()
        self._sent = 0
        self._first_failure: UndeliveredLine | None = None

    def send_values(self, place: InputLine, values: Sequence[bytes]) -> None:
        """Pass the lines, of which the first is at `place`, to the producer, each as the value of a record.

        The call does not wait for acknowledgements. Raises UndeliveredLine for the first line that cannot be sent, or
        whose record is known to have failed, including lines of earlier calls.
        """
        start = 0
        while start < len(values):
            line = place.line + start
            try:
                run = self._producer.send_values(self._topic, values, start, partition=self._partition)
            except (ValueError, MessageTooLargeError) as error:
                raise UndeliveredLine(InputLine(place.file, line), _reason(error)) from None
            count = run.record_count
            sizes_bytes = list(map(len, values[start : start + count]))
            self._under_way.append(_Sent(run, place.file, list(range(line, line + count)), sizes_bytes))
            self._sent += count
            start += count
        self._settle()

    def send_parsed(self, place: InputLine, lines: Sequence[bytes], parse: Callable[[bytes], OutgoingRecord]) -> None:
        """Pass the records that `parse` makes of the lines, of which the first is at `place`, to the producer.

        The call does not wait for acknowledgements. Raises UndeliveredLine as `send_values` does, and for a line that
        `parse` rejects with ValueError.
        """
        send, topic = self._producer.send, self._topic
        last: dict[int, _Sent] = {}  # by partition
        for number, line in enumerate(lines, place.line):
            try:
                value, key, headers, partition, timestamp_ms = parse(line)
                if self._partition is not None:
                    partition = self._partition
                future = send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
            except (ValueError, MessageTooLargeError, UnknownTopicOrPartitionError) as error:
                raise UndeliveredLine(InputLine(place.file, number), _reason(error)) from None
            self._sent += 1
            sent = last.get(future.partition)
            if sent is None or not future.join(sent.run):
                sent = last[future.partition] = _Sent(future.as_run(), place.file, [], [])
                self._under_way.append(sent)
            sent.lines.append(number)
            sent.sizes_bytes.append(len(value or b"") + len(key or b""))
        self._settle()

    def finish(self) -> None:
        """Wait until every record is acknowledged or has failed. Raise UndeliveredLine for the first that failed."""
        self._producer.flush()
        self._settle()

    def explain(self, error: BaseException) -> BaseException:
        """Wait for the records in flight, and return the exception to raise instead of `error`.

        Its text adds how many of the sent records are acknowledged. For a KeyboardInterrupt it is another
        KeyboardInterrupt, and the call waits at most two seconds; else it is a ClickException.
        """
        if isinstance(error, KeyboardInterrupt):
            self._producer.close(_INTERRUPTED_CLOSE_S)
        else:
            self._producer.flush()
        while self._under_way:
            self._note_outcome(self._under_way.popleft())
        tally = "no record was sent"
        if self._sent:
            sent = f"{count_of(self._sent, 'record')} sent {plural(self._sent, 'was', 'were')}"
            tally = f"{format_count(self.summary.records)} of {sent} acknowledged{self.summary.offsets_text()}"
        if isinstance(error, KeyboardInterrupt):
            return KeyboardInterrupt(f"interrupted: {tally}")
        hint = next_step(error) if isinstance(error, TidelogError) else ""
        return click.ClickException(f"{str(error) or type(error).__name__}{hint}; {tally}")

    def _settle(self) -> None:
        """Add the outcomes that are known to the summary, up to the first record whose outcome is not.

        Raises UndeliveredLine for the first record that failed.
        """
        while self._under_way and self._under_way[0].run.done():
            self._note_outcome(self._under_way.popleft())
        if self._first_failure is not None:
            raise self._first_failure

    def _note_outcome(self, sent: _Sent) -> None:
        at = 0
        for part in sent.run.parts():
            if part.error is None:
                size_bytes = sum(sent.sizes_bytes[at : at + part.record_count])
                self.summary.add(sent.run.partition, part, size_bytes)
            elif self._first_failure is None:
                self._first_failure = UndeliveredLine(InputLine(sent.file, sent.lines[at]), _reason(part.error))
            at += part.record_count


def _reason(error: Exception) -> str:
    hint = _LARGER if isinstance(error, MessageTooLargeError) else ""
    if isinstance(error, TidelogError) and not hint:
        hint = next_step(error)
    return f"{error}{hint}"
