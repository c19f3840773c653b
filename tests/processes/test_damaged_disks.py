"""Damage that a broker finds on its disk at the start: missing tails, torn batches, and invalid checkpoints."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from storage.file_names import BOOT_ID
from storage.files import RealFiles
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.replica_files import assert_replicas_identical, batches_on_disk, end_on_disk
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tests.processes.harness.workload import Workload
from tidelog import ElectionType, TopicPartition
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT
from tidelog.model import NO_LEADER
from tidelog.records.header import iter_headers
from verify.chaos.faults.support.shim import Page, Shim
from verify.chaos.targets.undo import UndoFile

pytestmark = pytest.mark.slow

SOON = {"replica_high_watermark_checkpoint_interval_ms": 100, "log_flush_offset_checkpoint_interval_ms": 100}


def newest_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def cut_off(path: Path, count: int) -> None:
    """The last `count` bytes are gone, as far as there are so many."""
    size = path.stat().st_size
    require_bite(f"{path} is empty", size)
    with path.open("r+b") as file:
        file.truncate(max(0, size - count))


def forget_boot(directory: Path) -> None:
    """As though the machine had gone down since."""
    (directory / BOOT_ID).write_text("00000000-0000-0000-0000-000000000000\n")


# --- a shorter tail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_leader_restarted_with_a_shorter_log_fetches_missing_records(cluster: RunningCluster, count: int) -> None:
    (tp,) = cluster.create_topic("t")
    victim = cluster.leader(tp)
    directory = cluster.local.broker_dir(victim)
    with ordeal(cluster, [tp]) as under:
        cluster.kill(victim)
        before = batches_on_disk(directory / str(tp))
        cut_off(newest_segment(directory / str(tp)), count)
        forget_boot(directory)
        under.workload.wait_acknowledged(200)
        gone = len(before) - len(batches_on_disk(directory / str(tp)))
        require_bite("no batch is gone", gone and f"{gone} batches gone")
        cluster.restart(victim)


@pytest.mark.slow
def test_replicas_that_lose_their_tails_in_turn_become_identical(cluster: RunningCluster) -> None:
    """The broker that has just rejoined leads next, and the old leader returns with a shorter log (KIP-101, 279)."""
    (tp,) = cluster.create_topic("t")
    chosen = random.Random(101)
    with ordeal(cluster, [tp]) as under:
        for _ in range(4):
            victim = cluster.leader(tp)
            directory = cluster.local.broker_dir(victim)
            cluster.kill(victim)
            before = end_on_disk(cluster, victim, tp)
            cut_off(newest_segment(directory / str(tp)), chosen.randrange(1, 5_000))
            forget_boot(directory)
            lost = before - end_on_disk(cluster, victim, tp)
            require_bite("it lost nothing", lost and f"{lost} records gone")
            under.workload.wait_acknowledged(50)
            cluster.restart(victim)
            cluster.wait_in_sync(tp)
            require_bite("no other broker leads", cluster.leader(tp) != victim)


def test_replica_that_lost_its_tail_does_not_lead_after_a_full_outage(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    with ordeal(cluster, tps) as under:
        under.workload.wait_acknowledged(200)
        victim = cluster.leader(tps[0])
        everyone = [cluster.local.broker_process(each) for each in cluster.broker_ids]
        for process in everyone:  # all at once, so that no broker notices the death of another
            assert process is not None and process.signal(signal.SIGSTOP)
        require_bite("a replica is not in sync", all(len(cluster.znode(tp).state.isr) == 3 for tp in tps))
        for each in cluster.broker_ids:
            cluster.kill(each)
        directory = cluster.local.broker_dir(victim)
        before = {tp: end_on_disk(cluster, victim, tp) for tp in tps}
        for tp in tps:
            cut_off(newest_segment(directory / str(tp)), 2_000)
        forget_boot(directory)
        lost = sum(before[tp] - end_on_disk(cluster, victim, tp) for tp in tps)
        require_bite("it lost nothing", lost and f"{lost} records gone")
        require_bite("it was taken out before", all(victim in cluster.znode(tp).state.isr for tp in tps))
        cluster.restart(victim)  # the first to be there, and by what ZooKeeper says in sync
        wait_for("it to be the controller", lambda: cluster.controller() == victim)
        cluster.local.start()


# --- power -----------------------------------------------------------------------------------------------------


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop,commit=600", image, at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def can_mount(directory: Path) -> bool:
    image, at = directory / "probe.img", directory / "probe"
    try:
        _make_image(image, 8)
        with mounted(image, at):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def _make_image(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", path], check=True, capture_output=True)


@pytest.mark.slow
def test_broker_after_a_power_loss_lacks_only_unflushed_records(cluster: RunningCluster, tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("no file system on an image can be mounted here")
    (tp,) = cluster.create_topic("t")
    victim = cluster.leader(tp)
    image, survivor = tmp_path / "disk.img", tmp_path / "survivor.img"
    _make_image(image, 64)
    cluster.terminate(victim)
    with mounted(image, tmp_path / "disk"):
        logs = tmp_path / "disk" / "logs"
        shutil.copytree(cluster.local.broker_dir(victim), logs)
        subprocess.run(["sync", "-f", logs], check=True)
        with ordeal(cluster, [tp]) as under:
            with cluster.launched(cluster.config(victim, "powered", log_dirs=[str(logs)])) as process:
                cluster.wait_in_sync(tp)
                under.workload.wait_acknowledged(1000)
                process.kill()
                process.wait()
                had = batches_on_disk(logs / str(tp))
                shutil.copyfile(image, survivor)
            with mounted(survivor, tmp_path / "after"):
                found = tmp_path / "after" / "logs"
                forget_boot(found)
                gone = len(had) - len(batches_on_disk(found / str(tp)))
                require_bite("everything was synced", gone and f"{gone} of {len(had)} batches gone")
                with cluster.launched(cluster.config(victim, "after", log_dirs=[str(found)])) as process:
                    cluster.wait_in_sync(tp)
                    under.workload.wait_acknowledged(100)
                    assert process.poll() is None
                    process.terminate()
                    process.wait(30)
                shutil.rmtree(cluster.local.broker_dir(victim))
                shutil.copytree(found, cluster.local.broker_dir(victim))
            cluster.restart(victim)


# --- torn writes -----------------------------------------------------------------------------------------------

#: In the base offset, between it and the length, in the epoch, the CRC, the header's last field, at its end, after it,
#: and before the last byte.
TEARS = [5, 8, 14, 19, 59, 61, 64, -1]


@pytest.fixture
async def tearing(tmp_path: Path) -> tuple[Mapping[str, str], Page]:
    """Return the environment of a broker whose writes can be torn, and the file that orders a torn write."""
    shim = Shim()
    if (reason := shim.missing()) is not None:
        pytest.skip(reason)
    places = await shim.set_up(UndoFile(tmp_path), tmp_path, {"1": DEFAULT_PLACEMENT})
    return places["1"].environment, shim.page("1")


def whole_bytes(segment: Path) -> int:
    """Return the end of the last complete batch."""
    return max((position + header.size_bytes for position, header in iter_headers(segment.read_bytes())), default=0)


@pytest.mark.parametrize("tears", [[19], pytest.param(TEARS, marks=pytest.mark.slow)])
def test_torn_batch_is_truncated_and_fetched_again(
    cluster: RunningCluster, tearing: tuple[Mapping[str, str], Page], tears: list[int]
) -> None:
    (tp,) = cluster.create_topic("t")
    victim = cluster.leader(tp)
    segment = newest_segment(cluster.local.broker_dir(victim) / str(tp))
    environment, page = tearing
    config = cluster.config(victim, f"broker-{victim}")
    with ordeal(cluster, [tp]) as under:
        cluster.kill(victim)
        for after_bytes in tears:
            with cluster.launched(config, environment) as process:
                cluster.wait_in_sync(tp)
                page.order(tear_after=after_bytes + 1 if after_bytes >= 0 else after_bytes)
                wait_bitten("the write to be torn", lambda process=process: process.poll() == -signal.SIGKILL)  # type: ignore[misc]
                torn = segment.stat().st_size - whole_bytes(segment)
                require_bite("the write was whole", torn and f"{torn} bytes of a batch")
            under.workload.wait_acknowledged(50)
        cluster.restart(victim)


# --- nonsense in checkpoints -----------------------------------------------------------------------------------

Damage = Callable[[bytes], bytes]

DAMAGES: dict[str, Damage] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "garbage": lambda content: bytes(random.Random(49).randbytes(200)),
    "text": lambda content: b"0\n1000000\nt 0 zero\n",
}


def from_the_future(path: Path, tp: TopicPartition) -> None:
    """Offsets and epochs that this log never had."""
    far = 10**12
    line = f"1000 {far}" if path.name == "leader-epoch-checkpoint" else f"{tp.topic} {tp.partition} {far}"
    path.write_text(f"0\n1\n{line}\n")


def checkpoints(directory: Path, tp: TopicPartition) -> list[Path]:
    return [directory / str(tp) / "leader-epoch-checkpoint", directory / HIGH_WATERMARKS, directory / RECOVERY_POINTS]


def damage(cluster: RunningCluster, broker_id: int, tp: TopicPartition, kind: str) -> dict[Path, bytes]:
    """The checkpoints of a broker that does not run say something else now: what, by file."""
    damaged: dict[Path, bytes] = {}
    for path in checkpoints(cluster.local.broker_dir(broker_id), tp):
        before = path.read_bytes()
        if kind == "future":
            from_the_future(path, tp)
        else:
            path.write_bytes(DAMAGES[kind](before))
        damaged[path] = path.read_bytes()
        require_bite(f"{path.name} is as it was", damaged[path] != before and f"{path.name} is {kind}")
    return damaged


def wait_checkpoints(cluster: RunningCluster, broker_id: int, tp: TopicPartition) -> None:
    for path in checkpoints(cluster.local.broker_dir(broker_id), tp):
        wait_for(f"{path}", path.exists)


def check_mended(cluster: RunningCluster, broker_id: int, tp: TopicPartition, damaged: dict[Path, bytes]) -> None:
    """Wait until the broker has rewritten its checkpoints. No checkpoint may name an offset outside its log."""
    for path, nonsense in damaged.items():
        wait_for(f"{path} to be written anew", lambda path=path, nonsense=nonsense: path.read_bytes() != nonsense)  # type: ignore[misc]
    for path in (cluster.local.broker_dir(broker_id) / name for name in (HIGH_WATERMARKS, RECOVERY_POINTS)):
        wait_for(f"{tp} to be in {path}", lambda path=path: tp in read_offsets(RealFiles(), path))  # type: ignore[misc]
        assert read_offsets(RealFiles(), path)[tp] <= end_on_disk(cluster, broker_id, tp), path


@pytest.mark.parametrize("cluster", [SOON], indirect=True)
@pytest.mark.parametrize("kind", ["gone", "cut"])
def test_log_without_committed_records_does_not_lead_even_if_first_back(cluster: RunningCluster, kind: str) -> None:
    (tp,) = cluster.create_topic("t")
    with Workload(cluster.bootstrap_servers, [tp]) as workload:
        workload.wait_acknowledged(300)
    victim = cluster.leader(tp)
    directory = cluster.local.broker_dir(victim)
    wait_for("a checkpoint", lambda: read_offsets(RealFiles(), directory / HIGH_WATERMARKS).get(tp, 0) > 250)
    cluster.kill_all()
    before = end_on_disk(cluster, victim, tp)
    if kind == "gone":
        shutil.rmtree(directory / str(tp))
    else:
        segment = newest_segment(directory / str(tp))
        cut_off(segment, segment.stat().st_size // 2)
        require_bite("nothing is cut off", before - end_on_disk(cluster, victim, tp))
    cluster.restart(victim)
    wait_for("it to be back alone", lambda: cluster.znode(tp).state.leader == NO_LEADER)
    assert len(cluster.znode(tp).state.isr) == 3
    cluster.local.start()
    cluster.wait_in_sync(tp)
    assert workload.check(cluster.bootstrap_servers) >= 300
    assert_replicas_identical(cluster, [tp])


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SOON], indirect=True)
def test_checkpoints_of_nonsense_cost_no_record(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    with ordeal(cluster, [tp]) as under:
        for kind in (*DAMAGES, "future"):
            victim = cluster.leader(tp)
            wait_checkpoints(cluster, victim, tp)
            cluster.kill(victim)
            damaged = damage(cluster, victim, tp, kind)
            under.workload.wait_acknowledged(50)
            cluster.restart(victim)
            cluster.wait_in_sync(tp)
            check_mended(cluster, victim, tp, damaged)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SOON], indirect=True)
@pytest.mark.parametrize("kind", [*DAMAGES, "future"])
def test_checkpoints_of_nonsense_on_all_replicas_cost_no_record(cluster: RunningCluster, kind: str) -> None:
    (tp,) = cluster.create_topic("t")
    with ordeal(cluster, [tp]):
        for each in cluster.broker_ids:
            wait_checkpoints(cluster, each, tp)
        cluster.kill_all()
        damaged = {each: damage(cluster, each, tp, kind) for each in cluster.broker_ids}
        cluster.local.start()
        if kind == "future":
            # By these checkpoints no replica has all committed records, so that an operator must allow the loss.
            wait_for("the partition to have no leader", lambda: cluster.znode(tp).state.leader == NO_LEADER)
            wait_for("an election", lambda: not any(cluster.admin.elect_leaders(ElectionType.UNCLEAN, [tp]).values()))
        cluster.wait_in_sync(tp)
        for each in cluster.broker_ids:
            check_mended(cluster, each, tp, damaged[each])
