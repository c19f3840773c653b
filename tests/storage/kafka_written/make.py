"""Makes the archives beside this file again, with a real Kafka and an unmodified client. See README.md."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.processes.harness.kafka import kafka_brokers
from tests.processes.harness.kafka_workload import Workload
from tests.storage.kafka_written.archive import LOGS, PRODUCERS, WRITTEN, Written, to_line
from tools.check.toolbox import DUMP_TOOL, kafka_command

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch), HERE)


def make(scratch: Path, destination: Path) -> None:
    """Write `clean.tar.xz` and `killed.tar.xz` into `destination`. NotRun, of tools.check, if Kafka is missing."""
    with kafka_brokers(scratch / "kafka", 2) as brokers:
        for broker in brokers:
            broker.start()
        workload = Workload(",".join(broker.bootstrap_servers for broker in brokers))
        workload.create_topics()
        first = brokers[0]
        workload.write(first.data, leave_transaction_open=False)
        first.stop()
        _keep("clean", first.data, workload.written, scratch, destination)
        first.start()
        workload.write(first.data, leave_transaction_open=True)
        first.kill()
        _keep("killed", first.data, workload.written, scratch, destination)


def _keep(name: str, logs: Path, written: Iterable[Written], scratch: Path, destination: Path) -> None:
    kept = scratch / name
    shutil.copytree(logs, kept / LOGS)
    (kept / WRITTEN).write_text("".join(f"{to_line(record)}\n" for record in written))
    (kept / PRODUCERS).write_text(_producers(kept / LOGS))
    with tarfile.open(destination / f"{name}.tar.xz", "w:xz") as archive:
        archive.add(kept, name, filter=_anonymous)


def _producers(logs: Path) -> str:
    """Return the output of Kafka's own tool for every snapshot."""
    snapshots = ",".join(str(path.relative_to(logs)) for path in sorted(logs.rglob("*.snapshot")))
    command = [*kafka_command(DUMP_TOOL), "--files", snapshots]
    return subprocess.run(command, cwd=logs, stdout=subprocess.PIPE, text=True, check=True).stdout


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
