"""Versions of packages, told from what the distribution asks for."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from dkfeat.doctor import machine as installation


def states(found):
    return {check.name: check.state for check in found}


def test_installation__of_the_tests_is_well():
    found = list(installation.check_installation())
    assert [check.name for check in found] == ["dkfeat", "packages", "extras"]
    assert states(found)["packages"] == "ok"
    assert f"dask {version('dask')}" in found[1].found
    assert "s3" in found[2].found


def with_versions(monkeypatch, **others):
    def found(name):
        if others.get(name, "") is None:
            raise PackageNotFoundError(name)
        return others.get(name) or version(name)

    monkeypatch.setattr(installation, "version", found)
    return {check.name: check for check in installation.check_installation()}


def test_package__that_is_too_old_fails_with_a_command(monkeypatch):
    check = with_versions(monkeypatch, numba="0.60.0")["packages"]
    assert (check.state, check.exit_code) == ("fail", 2)
    assert check.found == "numba 0.60.0 is not >=0.61"
    assert check.to_do.endswith("-m pip install --upgrade 'numba>=0.61'")


def test_extra__that_is_missing_is_no_fault(monkeypatch):
    check = with_versions(monkeypatch, s3fs=None)["extras"]
    assert check.state == "ok"
    assert "s3" in check.found.partition("not installed: ")[2]
    assert "pip install 'dkfeat[" in check.to_do


def test_extra__that_is_too_old_is_a_warning(monkeypatch):
    check = with_versions(monkeypatch, matplotlib="3.1")["extras"]
    assert (check.state, check.found) == ("warn", "matplotlib 3.1 is not >=3.8 (extra plot)")


def test_source_tree__without_an_installation_is_a_warning(monkeypatch):
    def requires(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "requires", requires)
    found = {check.name: check for check in installation.check_installation()}
    assert found["packages"].state == "warn"
    assert "extras" not in found


@pytest.mark.parametrize("name", installation.NOTED)
def test_packages__that_are_told_are_installed(name):
    assert version(name)
