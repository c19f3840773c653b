"""Runs the containers of docker-compose.yml by podman and podman-compose. No other module runs those."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

from tools.compose_check.reading import ROOT

BASE_IMAGES = ("docker.io/library/python:3.11-slim-bookworm", "docker.io/library/zookeeper:3.9")
#: A name of its own, because a cluster from the same file may already be running.
PROJECT = "tidelog-check"
SERVICES = tuple(f"{kind}-{number}" for kind in ("zookeeper", "broker") for number in (1, 2, 3))
IMAGE = "tidelog"
#: A broker's stop_grace_period.
GRACE_S = 30

_RUN_IN_NETWORK = ("run", "--rm", "--interactive", "--network", f"{PROJECT}_tidelog")
_LOOK_EVERY_S = 0.1
_HEALTH_EVERY_S = 2.0
_END_S = 10.0


class NotRun(Exception):
    """The check cannot be run. The message says what is missing."""


class Failed(Exception):
    """A promise of docker-compose.yml did not hold, or a command failed. The message says which."""


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait until `condition` holds, and return the seconds that it took.

    Raises Failed, which names `what`, if too long.
    """
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise Failed(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(_LOOK_EVERY_S)
    return time.monotonic() - started


class Containers:
    """The containers of the compose project `tidelog-check`. Methods raise Failed if podman fails.

    The constructor pulls missing base images, and raises NotRun if that fails or podman is not installed. `build_args`
    are passed to podman build as one argument.
    """

    def __init__(self, build_args: str) -> None:
        for command in ("podman", "podman-compose"):
            if shutil.which(command) is None:
                raise NotRun(f"{command} is not installed")
        self._build_args = build_args
        for image in BASE_IMAGES:
            if not (_works("image", "exists", image) or _works("pull", "--quiet", image)):
                raise NotRun(f"there is no image {image}, and no registry to fetch it from")

    def build(self) -> None:
        self._compose("build", "broker-1")

    def up(self) -> None:
        self._compose("up", "--detach")

    def stop_all(self) -> None:
        """Stop all containers by SIGTERM, but keep them, so that they can still be inspected."""
        self._compose("stop")

    def exit_status(self, service: str) -> int:
        """Return the exit status of a stopped service: 0 after a controlled end, 137 if it had to be killed."""
        return int(self._inspect(service, "{{.State.ExitCode}}"))

    def down(self, *options: str) -> None:
        self._compose("down", *options)

    def healthy(self) -> bool:
        """Return whether every service is healthy by the last run of its own health check."""
        return all(self.health(service) == "healthy" for service in SERVICES)

    def health(self, service: str) -> str:
        return self._inspect(service, "{{.State.Health.Status}}")

    def kill_process(self, service: str) -> None:
        """Send SIGKILL to the container's process, as the kernel does without memory, and wait until it has ended.

        The restart policy applies, unlike after `kill`.
        """
        pid = int(self._inspect(service, "{{.State.Pid}}"))
        os.kill(pid, SIGKILL)
        wait_for(f"the end of {service}", lambda: not _lives(pid), _END_S)

    def kill(self, service: str) -> None:
        """Kill the container, which stays down until `start`."""
        _podman("kill", "--signal", "KILL", _container(service))

    def stop(self, service: str) -> None:
        """Stop the container as `docker compose stop` does: SIGTERM, then SIGKILL if it has not ended after GRACE_S."""
        _podman("stop", "--time", str(GRACE_S), _container(service))

    def start(self, service: str) -> None:
        _podman("start", _container(service))

    def pause(self, service: str) -> None:
        """Freeze all processes of the container. Its network still accepts connections."""
        _podman("pause", _container(service))

    def unpause(self, service: str) -> None:
        _podman("unpause", _container(service))

    def memory_limit_bytes(self, service: str) -> int:
        return int(self._inspect(service, "{{.HostConfig.Memory}}"))

    def restart_policy(self, service: str) -> str:
        return self._inspect(service, "{{.HostConfig.RestartPolicy.Name}}")

    def user(self, service: str) -> str:
        """Return the numeric user id under which commands run in the container, as text."""
        return _podman("exec", _container(service), "id", "--user").stdout.strip()

    def log(self, service: str) -> str:
        done = _podman("logs", _container(service))
        return done.stdout + done.stderr

    def run(self, *command: str, given: str = "") -> str:
        """Run `tidelog COMMAND…` in another container of the same network, and return its standard output.

        `given` is its standard input. Raises Failed if the command fails.
        """
        return _podman(*_RUN_IN_NETWORK, IMAGE, *command, given=given).stdout

    def run_python(self, files: Mapping[Path, str], *command: str, given: str = "") -> str:
        """Run the image's Python in another container of the same network, and return its standard output.

        `files` are files and folders of the host, and where the container has them. `given` is the standard input.
        Raises Failed if the program fails.
        """
        mounted = [option for path, place in files.items() for option in ("--volume", f"{path}:{place}:ro")]
        return _podman(*_RUN_IN_NETWORK, *mounted, "--entrypoint", "python", IMAGE, *command, given=given).stdout

    def addresses(self) -> dict[str, str]:
        """Return the IP address of each service in the containers' network."""
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return {service: self._inspect(service, template) for service in SERVICES}

    @contextmanager
    def health_checks(self) -> Iterator[None]:
        """Run the health checks of all services every two seconds while the block runs.

        podman leaves this to timers of systemd, which may not be there.
        """
        over = threading.Event()

        def run() -> None:
            while not over.wait(_HEALTH_EVERY_S):
                for service in SERVICES:
                    _podman("healthcheck", "run", _container(service), check=False)

        thread = threading.Thread(target=run, name="health checks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _inspect(self, service: str, template: str) -> str:
        return _podman("inspect", "--format", template, _container(service)).stdout.strip()

    def _compose(self, *command: str) -> str:
        build = ("--podman-build-args", self._build_args) if self._build_args else ()
        return _run("podman-compose", "--project-name", PROJECT, *build, *command).stdout


def _container(service: str) -> str:
    return f"{PROJECT}_{service}_1"


def _works(*command: str) -> bool:
    return _podman(*command, check=False).returncode == 0


def _podman(*command: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run("podman", *command, given=given, check=check)


def _run(*command: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    # The OCI image format has no health checks.
    environment = os.environ | {"BUILDAH_FORMAT": "docker"}
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900, check=False
    )
    if check and done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()[-2000:] or done.stdout.strip()[-2000:]}")
    return done


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
