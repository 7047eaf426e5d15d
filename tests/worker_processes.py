"""The processes of a sidecar with several workers, as the kernel shows them, and a connection to each."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.raw_http import Connection
from tests.sidecar_process import SidecarProcess

#: The kernel spreads connections by chance; of so many, each of a few workers has some.
ENOUGH = 500


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(sidecar: SidecarProcess) -> list[int]:
    """Their process ids; one that has only been forked is none yet."""
    return [pid for pid in children(sidecar.pid) if b"--worker" in _command_line(pid)]


@contextmanager
def one_to_each(sidecar: SidecarProcess, port: int, number: int) -> Iterator[dict[int, Connection]]:
    """A connection to each of so many workers, by its process id."""
    with ExitStack() as stack:
        found: dict[int, Connection] = {}
        for _ in range(ENOUGH):
            connection = stack.enter_context(Connection(port))
            connection.ask("GET", "/health")  # so that it has been accepted
            found.setdefault(_holder(sidecar, port, connection.local_port), connection)
            if len(found) == number:
                break
        assert len(found) == number, f"only {len(found)} of {number} workers answer"
        yield found


def _holder(sidecar: SidecarProcess, port: int, peer: int) -> int:
    """The worker that has the other end of a connection from the local port `peer`."""
    ends = f"0100007F:{port:04X}", f"0100007F:{peer:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines():
        fields = line.split()
        if (fields[1], fields[2]) == ends:
            return next(pid for pid in workers(sidecar) if f"socket:[{fields[9]}]" in _files(pid))
    raise AssertionError(f"no worker has the connection from {peer}")


def _files(pid: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(file.readlink()))
        except OSError:  # it has been closed meanwhile
            continue
    return found


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
