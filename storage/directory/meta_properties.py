"""`meta.properties`: the broker and the cluster that own a log directory. Kafka's file.

Other lines, as a Kafka broker writes them, are ignored.

version=0 broker.id=1 cluster.id=Ysd1K2tSSbC0ubF4Jg5dRg
"""

from __future__ import annotations

from pathlib import Path

from storage.files import Files
from tidelog.errors import DataDirectoryError

FILE_NAME = "meta.properties"

_MISMATCH = {
    "version": "another version of the format wrote the file",
    "broker.id": "the directory belongs to another broker",
    "cluster.id": "the directory belongs to another cluster",
}


def write(directory: Path, files: Files, broker_id: int, cluster_id: str) -> None:
    """Write the file and flush it, so that the directory belongs to this broker."""
    text = f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
    files.replace(directory / FILE_NAME, text.encode())


def check(directory: Path, files: Files, broker_id: int, cluster_id: str) -> bool:
    """Return whether the directory belongs to this broker; False if it has no owner yet.

    DataDirectoryError if it belongs to another broker or cluster, or if the file has another format version.
    """
    data = files.read(directory / FILE_NAME)
    if data is None:
        return False
    lines = (line for line in data.decode("utf-8", "replace").splitlines() if not line.startswith(("#", "!")))
    fields = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    for name, wanted in (("version", "0"), ("broker.id", str(broker_id)), ("cluster.id", cluster_id)):
        found = fields.get(name, "")
        if found != wanted:
            raise DataDirectoryError(
                f"{directory / FILE_NAME} says {name}={found or '(nothing)'} instead of {wanted}:"
                f" {_MISMATCH[name]}. The directory is not used; check the setting log_dirs"
            )
    return True
