"""`gwi launch`: torchrun with two settings, under which a fit whose process died is started again and does not hang."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gwi.exceptions import UserError

# The variable with the path of a file for what the user did wrong, which no restart would mend.
MISTAKE = "GWI_LAUNCH_MISTAKE"
# The variable with the number of the process that launched this one.
LAUNCHER = "GWI_LAUNCHER"
# Seconds between two looks whether it lives, and those that work in order may take to end after it does not.
LOOK, GRACE = 1.0, 10.0
# How often processes are started again after one of them died.
MAX_RESTARTS = 100


def launch(arguments: Sequence[str]) -> None:
    """Run `fit` on the processes that options of torchrun say, and wait for them.

    Raises:
        UserError: when there is no such command, when a process says what the user did wrong, or when one failed for good.
    """
    if "fit" not in arguments:
        raise UserError(
            "gwi launch takes options of torchrun and then the command fit, as in: gwi launch --nproc-per-node 4 fit ..."
        )
    # With a store shared between torchrun and its processes, restarts were seen to hang in three of eight runs.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import main

    place = list(arguments).index("fit")
    is_alone = not any(option.startswith(("--nnodes", "--rdzv", "--master", "--standalone")) for option in arguments[:place])
    settings = [f"--max-restarts={MAX_RESTARTS}", *(["--standalone"] if is_alone else [])]
    with tempfile.TemporaryDirectory(prefix="gwi-") as folder:
        mistake = Path(folder) / "mistake"
        os.environ |= {MISTAKE: str(mistake), LAUNCHER: str(os.getpid())}
        # What torchrun keeps for its processes goes with the folder.
        settings += [f"--log-dir={folder}"]
        try:
            main([*settings, *arguments[:place], "-m", "gwi", *arguments[place:]])
        except SignalException as stop:
            # torchrun has ended its processes.
            raise KeyboardInterrupt(signal.Signals(stop.sigval)) from stop
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise UserError(f"Process {rank} ended with code {failure.exitcode}; its own message is above.") from error
        except RendezvousError as error:
            raise UserError(
                f"The machines of this launch did not find each other: {error} Start the same command on all of them."
            ) from error
        if mistake.exists():
            raise UserError(mistake.read_text())


def mistake_file() -> Path | None:
    """Where a process of a launch says what the user did wrong; None in any other process.

    It should then end with code 0: after any other torchrun starts it again.
    """
    return Path(os.environ[MISTAKE]) if MISTAKE in os.environ and "TORCHELASTIC_RUN_ID" in os.environ else None


def end_with_launcher() -> None:
    """In a process of a launch: end soon after the launcher was killed, and remove its folder. Elsewhere nothing."""
    if (file := mistake_file()) is None or LAUNCHER not in os.environ:
        return
    launcher = int(os.environ[LAUNCHER])

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(LOOK)
        shutil.rmtree(file.parent, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        # It waits for a message from a process that has ended.
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
