"""Defaults from Dask's configuration."""

import dask
import pytest

from dkfeat.doctor.machine import check_settings, default_scheduler


def check():
    (found,) = check_settings()
    return found


def test_settings__that_are_right_are_told():
    with dask.config.set({"dkfeat.n-workers": 4, "dkfeat.scheduler": "tcp://10.0.0.1:8786"}):
        found = check()
        assert default_scheduler() == ("tcp://10.0.0.1:8786", None)
    assert found.state == "ok"
    assert found.found == "scheduler tcp://10.0.0.1:8786 by this process; n-workers 4 by this process"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"dkfeat.n-wrokers": 4}, "did you mean 'n-workers'"),
        ({"dkfeat.cluster": "/nowhere/slurm.yaml"}, "/nowhere/slurm.yaml"),
    ],
)
def test_settings__that_are_wrong_fail(settings, match):
    with dask.config.set(settings):
        found = check()
        assert default_scheduler() == (None, None)
    assert (found.state, found.exit_code) == ("fail", 2)
    assert match in found.found


def test_settings__that_are_missing_are_well():
    with dask.config.set({"dkfeat": None}):
        assert check().found == "no defaults are set"
        assert default_scheduler() == (None, None)
