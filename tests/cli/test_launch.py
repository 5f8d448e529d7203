"""`gwi launch` is torchrun with two settings; a mistake of the user's is said once and not tried again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.studies import hosts
from torch.distributed import run
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError

from gwi.cli import commands as cli
from gwi.cli.launch import LAUNCHER, MISTAKE, launch
from gwi.exceptions import UserError

pytestmark = pytest.mark.unchecked


@pytest.fixture
def torchrun(monkeypatch):
    """What torchrun is called with; nothing is started."""
    calls = []
    for name in ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", MISTAKE, LAUNCHER):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(run, "main", calls.append)
    return calls


def test_options_go_to_torchrun_behind_our_settings(torchrun):
    launch(["--nproc-per-node", "4", "fit", "a.parquet", "-t", "y"])
    launch(["--nnodes=2", "--max-restarts=3", "fit"])
    command = ["-m", "gwi", "fit", "a.parquet", "-t", "y"]
    logs = [call.pop(place) for call, place in zip(torchrun, (2, 1), strict=True)]
    assert all(option.startswith("--log-dir=") for option in logs)
    assert torchrun[0] == ["--max-restarts=100", "--standalone", "--nproc-per-node", "4", *command]
    # The last one counts.
    assert torchrun[1] == ["--max-restarts=100", "--nnodes=2", "--max-restarts=3", "-m", "gwi", "fit"]
    assert os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert run.get_args_parser().parse_args([*torchrun[1]]).max_restarts == 3


def test_a_launch_without_a_command_and_machines_that_do_not_meet_are_one_sentence(torchrun, monkeypatch, capsys):
    assert cli.run(["launch", "--nproc-per-node", "4"]) == 2
    assert "gwi: gwi launch takes options of torchrun" in capsys.readouterr().err

    def fail(arguments):
        raise RendezvousConnectionError("The connection to the C10d store has failed.")

    monkeypatch.setattr(run, "main", fail)
    with pytest.raises(UserError, match=r"did not find each other: The connection .* Start the same command on all of them"):
        launch(["--nnodes=2", "--rdzv-endpoint=127.0.0.1:29500", "fit"])


def test_a_mistake_is_said_by_the_launcher_and_not_tried_again(torchrun, monkeypatch, capsys):
    codes, wrong = [], ["fit", "none.csv", "-t", "y", "-o", "m.gwi"]

    def work(arguments):
        """Two processes that meet the same mistake, and one that is started again after it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TORCHELASTIC_RUN_ID", "1")
            codes.extend(cli.run([*words]) for words in (wrong, wrong, ["fit"]))

    monkeypatch.setattr(run, "main", work)
    assert cli.run(["launch", "fit"]) == 2
    assert codes == [0, 0, 0]
    assert capsys.readouterr().err == "gwi: none.csv cannot be read: No such file or directory.\n"


def test_a_process_of_a_launch_that_fails_says_so(monkeypatch, tmp_path, capsys):
    def fail(*given, **named):
        raise RuntimeError("a bug")

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv(MISTAKE, f"{tmp_path}/mistake")
    monkeypatch.setattr(cli, "get_command", lambda app: SimpleNamespace(make_context=fail))
    assert cli.run(["fit"]) == 1
    assert "this is a bug in gwi" in capsys.readouterr().err
    assert not (tmp_path / "mistake").exists()


# The command, in which a fit says that it has begun and takes its time: the worker's part of a launch.
SLOW = """
import sys, time
from pathlib import Path
from gwi.cli import commands
import gwi.tables.source as source
def open_table(path):
    Path(path).with_name(f"{__import__('os').getpid()}.worker").touch()
    time.sleep(60)
source.open_table = open_table
commands.main()
"""


def is_alive(number):
    """A process that nobody has waited for yet is not."""
    status = Path(f"/proc/{number}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


LATER = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]


@pytest.mark.parametrize("number", [signal.SIGKILL, *LATER])
def test_a_launcher_that_is_ended_leaves_no_process_and_no_folder(tmp_path, number):
    package, scratch = tmp_path / "slow", tmp_path / "scratch"
    package.mkdir()
    scratch.mkdir()
    # torchrun starts `python -m gwi` again, with this in its place.
    (package / "sitecustomize.py").write_text(
        f"import sys\nif '-m' in sys.orig_argv and 'fit' in sys.orig_argv and 'launch' not in sys.orig_argv:\n"
        f"    sys.argv = ['gwi', *sys.orig_argv[sys.orig_argv.index('fit'):]]\n    exec({SLOW!r})\n"
    )
    path = ":".join([str(package), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "gwi", "launch", "--nproc-per-node", "2", "fit", f"{tmp_path}/data.csv", "-t", "y"]
    with subprocess.Popen([*command, "-o", f"{tmp_path}/m.gwi"], env=environment, stderr=subprocess.PIPE) as launcher:
        until(lambda: len(list(tmp_path.glob("*.worker"))) == 2)
        workers = [int(path.stem) for path in tmp_path.glob("*.worker")]
        launcher.send_signal(number)
        assert launcher.wait(60) == (-9 if number == signal.SIGKILL else 128 + number)
        until(lambda: not any(map(is_alive, workers)))
        said = launcher.stderr.read().decode()
    if number != signal.SIGKILL:
        assert "gwi: interrupted; no output was written." in said
    assert "bug in gwi" not in said
    assert list(scratch.iterdir()) == []


def until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_page_says_which_channels_trust_their_network():
    page = (Path(__file__).parents[2] / "docs" / "scaling-costs.md").read_text()
    (said,) = (line for line in page.splitlines() if line.startswith("**Networks that are trusted.**"))
    for words in ("gloo", "--rdzv-endpoint", "Dask", "neither encryption nor passwords", "private network"):
        assert words in said


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="only root makes network namespaces, with ip")
def test_two_hosts_fit_the_model_of_one():
    found = {(row["what"], row["number"]): row["value"] for row in hosts.measure(2000, 1)}
    assert found["exit code", 1] == found["exit code", 2] == 0
    assert found["bytes", 1] > 1e6
    assert found["difference", 2] <= 1e-10
