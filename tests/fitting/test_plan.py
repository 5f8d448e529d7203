"""The plan of means is made for the time that is allowed."""

import pytest

from gwi.fitting.plan import classification_members, estimated_seconds, planned, regression_members


@pytest.mark.parametrize("num_rows", [100, 1000, 10_000, 1_000_000])
@pytest.mark.parametrize("num_classes", [1, 3], ids=["numbers", "classes"])
def test_less_time_never_means_more_work(num_rows, num_classes):
    members = regression_members(num_rows, 8) if num_classes == 1 else classification_members(num_rows, 8, num_classes)
    plans = [planned(members, num_rows, 8, max_time, num_classes)[0] for max_time in (0.0, 5.0, 20.0, 60.0, 600.0, None)]
    seconds = [estimated_seconds(means, num_rows, 8, num_classes) for means in plans]
    assert seconds == sorted(seconds)
    assert plans[-1] == members
    assert set(plans[0]) == {"svgp", "linear"}
