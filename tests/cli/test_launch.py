"""`gwi launch` hands its options to torchrun, and sees to it that machines find each other."""

import os
import shutil
import sys

import pytest
from benchmarks.studies import hosts

from gwi.cli import launch as launching
from gwi.cli.launch import torchrun_arguments
from gwi.exceptions import UserError


def test_the_launcher_passes_options_on_and_says_what_it_needs():
    found = torchrun_arguments(["--nproc-per-node", "4", "fit", "a.parquet", "-t", "y"])
    assert found[:2] == ["--nproc-per-node", "4"]
    assert found[-6:] == ["-m", "gwi", "fit", "a.parquet", "-t", "y"]
    assert "--standalone" in found
    two = torchrun_arguments(["--nnodes=2", "--max-restarts=3", "fit"])
    assert two == ["--nnodes=2", "--max-restarts=3", "-m", "gwi", "fit"]
    with pytest.raises(UserError, match="gwi launch takes"):
        torchrun_arguments(["--nproc-per-node", "4"])


@pytest.mark.parametrize("endpoint", [["--rdzv-endpoint", "127.0.0.1:29500"], ["--rdzv_endpoint=127.0.0.1:29500"]])
def test_the_machine_at_the_endpoint_listens_under_its_address_there(endpoint):
    found = torchrun_arguments(["--nnodes=2", *endpoint, "fit"])
    assert {"--local-addr=127.0.0.1", "--rdzv-conf=is_host=1"} <= set(found)
    own = torchrun_arguments(["--nnodes=2", *endpoint, "--local-addr=here", "--rdzv-conf=timeout=9", "fit"])
    assert [option for option in own if option.startswith(("--local-addr", "--rdzv-conf"))] == [
        "--local-addr=here",
        "--rdzv-conf=timeout=9",
    ]


def test_a_machine_knows_its_addresses_from_those_of_others():
    # A documentation address (RFC 5737) is nobody's, and .invalid no name (RFC 2606).
    assert launching.is_own("127.0.0.1")
    assert not launching.is_own("192.0.2.1")
    assert launching.own_address("127.0.0.1") == "127.0.0.1"
    assert launching.own_address("nowhere.invalid") is None
    assert launching.interface_of("192.0.2.1") is None
    if sys.platform.startswith("linux"):
        assert launching.interface_of("127.0.0.1") == "lo"
    assert launching.meeting_host(["--nnodes", "2", "--master-addr", "first"]) == "first"
    assert launching.meeting_host(["--nproc-per-node", "2"]) == ""


def test_machines_that_do_not_meet_are_told_what_to_do(monkeypatch):
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError

    def fail(arguments):
        raise RendezvousConnectionError("The connection to the C10d store has failed.")

    monkeypatch.setattr(run, "main", fail)
    for name in ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", launching.MISTAKE):
        monkeypatch.setenv(name, "")
    with pytest.raises(UserError, match=r"did not meet at 127\.0\.0\.1: The connection .* Start the same command on all of them"):
        launching.launch(["--nnodes=2", "--rdzv-endpoint=127.0.0.1:29500", "fit"])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="only root makes network namespaces, with ip")
def test_two_hosts_fit_the_model_of_one():
    found = {(row["what"], row["number"]): row["value"] for row in hosts.measure(2000, 1)}
    assert found["exit code", 1] == found["exit code", 2] == 0
    assert found["bytes", 1] > 1e6
    assert found["difference", 2] <= 1e-10
