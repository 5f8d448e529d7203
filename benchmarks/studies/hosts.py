"""One model fitted on two hosts: two network namespaces joined by a virtual cable, with an agent of torchrun in each.

    python -m benchmarks.studies.hosts [--rows 20000] [--processes 2]

as root, since only root makes namespaces (Debian's iproute2). Each namespace has a loopback and one end of the cable and sees no
other network, so all that the processes of the two hosts say to each other goes over the cable, and is counted there. The same
fit on as many processes of one host is the comparison. Records go to results/hosts.csv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.studies.kills import difference, fit_command, rows
from benchmarks.tables.common import records

HOSTS = ("gwi-first", "gwi-second")
ENDS = ("gwi-cable-a", "gwi-cable-b")
ADDRESSES = ("198.18.77.1", "198.18.77.2")
PORT = 29571
SECONDS = 900.0


def run(*command: str) -> str:
    """What a command of the system prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two namespaces with a cable between them, which are taken away at the end."""
    try:
        for host in HOSTS:
            run("ip", "netns", "add", host)
        run("ip", "link", "add", ENDS[0], "type", "veth", "peer", "name", ENDS[1])
        for host, end, address in zip(HOSTS, ENDS, ADDRESSES, strict=True):
            run("ip", "link", "set", end, "netns", host)
            run("ip", "-n", host, "address", "add", f"{address}/24", "dev", end)
            for device in ("lo", end):
                run("ip", "-n", host, "link", "set", device, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True)


def sent(place: int) -> int:
    """Bytes that a host has sent over the cable."""
    return int(run("ip", "netns", "exec", HOSTS[place], "cat", f"/sys/class/net/{ENDS[place]}/statistics/tx_bytes"))


def agent(place: int, num_processes: int, data: Path, output: Path) -> list[str]:
    """The command of one host."""
    meeting = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "gwi", "--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}"]
    # The names of namespaces say nothing, so that torchrun and gloo are told who listens, and where.
    meeting += ["--local-addr", ADDRESSES[place], "--rdzv-conf", f"is_host={int(place == 0)}"]
    launch = [sys.executable, "-m", "gwi", "launch", *meeting, "--nproc-per-node", str(num_processes)]
    network = ["env", f"GLOO_SOCKET_IFNAME={ENDS[place]}"]
    return ["ip", "netns", "exec", HOSTS[place], *network, *launch, *fit_command(data, output)]


def measure(num_rows: int, num_processes: int) -> Iterator[dict[str, Any]]:
    """One fit on two hosts, and the same on one."""
    with tempfile.TemporaryDirectory(prefix="gwi-hosts-") as name, two_hosts():
        folder = Path(name)
        data = rows(folder / "rows.parquet", num_rows)
        together, alone = folder / "hosts.gwi", folder / "alone.gwi"
        start = time.monotonic()
        begun = [subprocess.Popen(agent(place, num_processes, data, together), cwd=records.ROOT) for place in range(2)]
        codes = [process.wait(SECONDS) for process in begun]
        seconds = time.monotonic() - start
        for place, code in enumerate(codes):
            yield {"what": "exit code", "number": place + 1, "value": float(code), "note": "of gwi launch on this host"}
            yield {"what": "bytes", "number": place + 1, "value": float(sent(place)), "note": "sent over the cable by this host"}
        launch = [sys.executable, "-m", "gwi", "launch", "--nproc-per-node", str(2 * num_processes)]
        subprocess.run([*launch, *fit_command(data, alone)], check=True, cwd=records.ROOT)
        note = f"largest of a number in the model file from the fit on {2 * num_processes} processes of one host; "
        note += f"two hosts took {seconds:.0f} s"
        yield {"what": "difference", "number": 2 * num_processes, "value": difference(together, alone), "note": note}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2, help="on each host")
    parser.add_argument("--quick", action="store_true", help="one process a host and few rows; nothing is written")
    options = parser.parse_args(arguments)
    if options.quick:
        for row in measure(2000, 1):
            print(*row.values(), sep=", ", flush=True)
    else:
        records.write("hosts", measure(options.rows, options.processes))


if __name__ == "__main__":
    main()
