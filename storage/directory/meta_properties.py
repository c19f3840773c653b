"""`meta.properties`: whose log directory it is. Kafka's file; what else a Kafka broker wrote into it is left there.

version=0
broker.id=1
cluster.id=Ysd1K2tSSbC0ubF4Jg5dRg
"""

from __future__ import annotations

from pathlib import Path

from storage.files import Files
from tidelog.errors import DataDirectoryError

FILE_NAME = "meta.properties"

_WHOSE = {
    "version": "another version wrote it",
    "broker.id": "it is another broker's",
    "cluster.id": "it is another cluster's",
}


def write(directory: Path, files: Files, broker_id: int, cluster_id: str) -> None:
    """Makes the directory this broker's, durably."""
    text = f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
    files.replace(directory / FILE_NAME, text.encode())


def check(directory: Path, files: Files, broker_id: int, cluster_id: str) -> bool:
    """Whether the directory is this broker's; False where it is nobody's yet. DataDirectoryError: somebody else's."""
    data = files.read(directory / FILE_NAME)
    if data is None:
        return False
    lines = (line for line in data.decode("utf-8", "replace").splitlines() if not line.startswith(("#", "!")))
    fields = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    for name, wanted in (("version", "0"), ("broker.id", str(broker_id)), ("cluster.id", cluster_id)):
        found = fields.get(name, "")
        if found != wanted:
            raise DataDirectoryError(
                f"{directory / FILE_NAME} says {name}={found or 'nothing'}, not {wanted}:"
                f" {_WHOSE[name]}; it is left as it is, see log_dirs"
            )
    return True
