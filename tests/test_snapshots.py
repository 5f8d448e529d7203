"""A snapshot is whole or the last one stays, and one of another fit is passed over."""

import resource

import pytest
import torch

from gwi.snapshots import Snapshots


def test_a_snapshot_comes_back_to_the_last_bit(tmp_path):
    snapshots = Snapshots.of(tmp_path / "new", {"seed": 1})
    assert snapshots.read("network") is None
    value = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert snapshots.write("network", {"steps": 7}, {"w": value})
    progress, tensors = Snapshots.of(tmp_path / "new", {"seed": 1}).read("network")
    assert progress == {"steps": 7}
    assert torch.equal(tensors["w"], value)
    assert Snapshots.of(tmp_path / "new", {"seed": 2}).read("network") is None
    snapshots.clear()
    assert snapshots.read("network") is None


def test_a_full_disk_leaves_the_last_snapshot_and_says_so(tmp_path):
    snapshots = Snapshots.of(tmp_path, "fit")
    snapshots.write("network", {"steps": 1}, {"w": torch.ones(2000)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The system refuses to let a file grow beyond 4 kB, as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.warns(RuntimeWarning, match=r"could not be written \(.+\); the one before it is kept"):
            assert not snapshots.write("network", {"steps": 2}, {"w": torch.ones(2000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert snapshots.read("network")[0] == {"steps": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["network.snapshot"]


def test_a_damaged_snapshot_is_passed_over_with_a_warning(tmp_path):
    snapshots = Snapshots.of(tmp_path, "fit")
    snapshots.write("network", {"steps": 1}, {"w": torch.ones(3)})
    path = tmp_path / "network.snapshot"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.warns(RuntimeWarning, match="begins anew"):
        assert snapshots.read("network") is None


def test_without_a_folder_nothing_is_kept():
    assert not Snapshots().write("network", {}, {})
    assert Snapshots().read("network") is None
