"""Starting several processes of one fit by torchrun, with the settings under which restarts do not hang."""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gwi.exceptions import UserError

COMMANDS = ("fit",)
# The variable with the path of a file that is there once a process has found a mistake of the user's.
MISTAKE = "GWI_LAUNCH_MISTAKE"
# How often processes are started again after one of them died.
MAX_RESTARTS = 100
# Seconds that a process waits for another to say that the user made a mistake.
PARTNER_TIME = 5.0


def torchrun_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments of torchrun from those of `gwi launch`: its options, then a command of ours.

    Raises:
        UserError: when there is no such command.
    """
    places = [i for i, word in enumerate(arguments) if word in COMMANDS]
    if not places:
        raise UserError(
            "gwi launch takes options of torchrun and then the command fit, as in: gwi launch --nproc-per-node 4 fit ..."
        )
    options, command = list(arguments[: places[0]]), list(arguments[places[0] :])
    given = {option.split("=")[0].replace("_", "-") for option in options}
    if not given & {"--nnodes", "--rdzv-endpoint", "--master-addr", "--standalone"}:
        options.append("--standalone")
    if "--max-restarts" not in given:
        options.append(f"--max-restarts={MAX_RESTARTS}")
    if "--rdzv-endpoint" in given:
        options += meeting_options(meeting_host(options), given)
    return [*options, "-m", "gwi", *command]


def meeting_host(options: Sequence[str]) -> str:
    """The machine, by name or address, at which those of a launch meet; empty where there is one machine alone."""
    words = [part for option in options for part in option.split("=", 1)]
    names = [word.replace("_", "-") for word in words]
    for name in ("--rdzv-endpoint", "--master-addr"):
        if name in names[:-1]:
            host = words[names.index(name) + 1]
            return host.rpartition(":")[0] if name == "--rdzv-endpoint" and ":" in host else host
    return ""


def meeting_options(host: str, given: set[str]) -> list[str]:
    """Who listens, and the address under which others find this machine.

    torchrun takes both from the machine's name, which in a container, or where the name stands for 127.0.1.1, says nothing.
    """
    address = own_address(host)
    if address is None:
        return []
    options = [] if "--local-addr" in given else [f"--local-addr={address}"]
    return options if "--rdzv-conf" in given else [*options, f"--rdzv-conf=is_host={int(is_own(host))}"]


def own_address(host: str) -> str | None:
    """The address that this machine has in the network of another, or of itself; None where there is no way."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as opened:
            # Of datagrams this only asks for the way: nothing is sent.
            opened.connect(address)
            return str(opened.getsockname()[0])
    except OSError:
        return None


def is_own(host: str) -> bool:
    """Whether a name or an address is that of this machine: only there can it be listened to."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as opened:
            opened.bind(address)
    except OSError:
        return False
    return True


def interface_of(address: str) -> str | None:
    """The name of the network interface with this IPv4 address; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        for _, name in socket.if_nameindex():
            try:
                # SIOCGIFADDR: the address stands behind the name of 16 bytes, the family and the port.
                found = fcntl.ioctl(opened.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None


def launch(arguments: Sequence[str]) -> int:
    """Run a command on the processes that the options of torchrun say, and wait for them; the exit code."""
    # With a store shared between the agent and its workers, restarts were seen to hang in three of eight runs.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    # One thread a process: several would fight for the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    host = meeting_host(arguments)
    interface = interface_of(own_address(host) or "") if host else None
    if interface is not None:
        # Gloo, too, would listen where the machine's name points to.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import main

    with tempfile.TemporaryDirectory(prefix="gwi-") as folder:
        os.environ[MISTAKE] = str(Path(folder) / "mistake")
        try:
            main(torchrun_arguments(arguments))
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise UserError(f"Process {rank} ended with code {failure.exitcode}; its own message is above.") from error
        except RendezvousError as error:
            raise UserError(
                f"The machines of this launch did not meet at {host or 'the given place'}: {error} Start the same command on all "
                "of them within some minutes, one of them the machine of that name or address, and see that its port is open."
            ) from error
        return 2 if is_given_up() else 0


def is_launched() -> bool:
    """Whether this process is one of a launch."""
    return MISTAKE in os.environ and "TORCHELASTIC_RUN_ID" in os.environ


def is_given_up(wait: float = 0.0) -> bool:
    """Whether a process of this launch found a mistake of the user's, which no restart would mend.

    Args:
        wait: seconds in which it may still say so.
    """
    if MISTAKE not in os.environ:
        return False
    deadline = time.monotonic() + wait
    while not Path(os.environ[MISTAKE]).exists():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def give_up() -> bool:
    """Tell the launcher that a restart would not help; whether no process has told it before.

    The process should then end with code 0: after any other torchrun starts it again.
    """
    try:
        Path(os.environ[MISTAKE]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
