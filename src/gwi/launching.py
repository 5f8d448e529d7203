"""Starting several processes of one fit by torchrun, with the settings under which restarts do not hang."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gwi.tables import UserError

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
    return [*options, "-m", "gwi", *command]


def launch(arguments: Sequence[str]) -> int:
    """Run a command on the processes that the options of torchrun say, and wait for them; the exit code."""
    # With a store shared between the agent and its workers, restarts were seen to hang in three of eight runs.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    # One thread a process: several would fight for the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    with tempfile.TemporaryDirectory(prefix="gwi-") as folder:
        os.environ[MISTAKE] = str(Path(folder) / "mistake")
        try:
            main(torchrun_arguments(arguments))
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise UserError(f"Process {rank} ended with code {failure.exitcode}; its own message is above.") from error
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
