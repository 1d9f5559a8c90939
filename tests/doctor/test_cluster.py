"""Schedulers and workers, real ones."""

import json

import dask
import pytest
from distributed import versions

from dkfeat.doctor import checks
from dkfeat.doctor.checks import check_cluster


@pytest.mark.cluster
def test_cluster__that_is_well(cluster_client, tmp_path):
    address = cluster_client.scheduler.address
    scheduler, workers = check_cluster(address)
    assert scheduler.found.startswith(f"{address} answers: 2 workers on 1 host, 2 threads")
    assert (scheduler.state, workers.state) == ("ok", "ok"), workers.found
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": address}))
    assert [check.state for check in check_cluster(None, str(tmp_path / "scheduler.json"))] == ["ok", "ok"]


@pytest.mark.cluster
def test_workers__of_other_versions_are_a_warning(cluster_client, monkeypatch):
    found = versions.get_versions

    def get_versions(packages=None):
        here = found(packages)
        return {**here, "packages": {**here["packages"], "dkfeat": "9.9"}}

    monkeypatch.setattr(versions, "get_versions", get_versions)
    *_, workers = check_cluster(cluster_client.scheduler.address)
    assert workers.state == "warn"
    assert "dkfeat" in workers.found
    assert "9.9" in workers.found


@pytest.mark.cluster
def test_workers__whose_samples_differ_or_that_lack_dkfeat_fail(cluster_client, monkeypatch):
    monkeypatch.setattr(checks, "EXPECTED", "")
    *_, workers = check_cluster(cluster_client.scheduler.address)
    assert (workers.state, workers.exit_code) == ("fail", 5)
    assert workers.found.count("gives other samples than other machines do") == 2

    def digest():
        raise ModuleNotFoundError("No module named 'dkfeat'")

    monkeypatch.setattr(checks, "digest_of_samples", digest)
    *_, workers = check_cluster(cluster_client.scheduler.address)
    assert "ModuleNotFoundError: No module named 'dkfeat'" in workers.found


@pytest.mark.cluster
def test_scheduler__without_workers_is_a_warning():
    from distributed import LocalCluster

    settings = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(
        n_workers=0, processes=False, host="127.0.0.1", protocol="tcp://", scheduler_kwargs=settings
    ) as empty:
        (check,) = check_cluster(empty.scheduler_address)
    assert check.state == "warn"
    assert check.to_do == f"start some: dask worker {empty.scheduler_address}"


@pytest.mark.parametrize(
    ("address", "exit_code", "found"),
    [
        ("tcp://127.0.0.1:9", 5, "no Dask scheduler answers at tcp://127.0.0.1:9"),
        (None, 5, ""),  # a file that is not there
        ("localhost:8786", 2, "'localhost:8786' is no address of a scheduler: it has no protocol"),
        ("threads://x", 2, "'threads://x' is no address of a scheduler: unknown address scheme 'threads'"),
        ("tcp://login-node", 2, "'tcp://login-node' is no address of a scheduler: missing port number"),
    ],
)
def test_scheduler__that_is_not_there_or_has_no_address_fails(monkeypatch, tmp_path, address, exit_code, found):
    monkeypatch.setattr(checks, "ANSWER_SECONDS", 0.3)
    (check,) = check_cluster(address, None if address else str(tmp_path / "scheduler.json"))
    assert (check.state, check.exit_code) == ("fail", exit_code)
    assert check.found.startswith(found)
    assert exit_code == 5 or check.found.endswith("give one such as 'tcp://10.0.0.1:8786'")


def test_cluster__of_the_defaults(monkeypatch):
    monkeypatch.setattr(checks, "ANSWER_SECONDS", 0.2)
    with dask.config.set({"dkfeat": None}):
        assert list(check_cluster()) == []
    for defaults, exit_code in (({"scheduler": "tcp://127.0.0.1:9"}, 5), ({"n-wrokers": 4}, 2)):
        with dask.config.set({f"dkfeat.{name}": value for name, value in defaults.items()}):
            (check,) = check_cluster()
        assert (check.state, check.exit_code) == ("fail", exit_code)
    assert "did you mean 'n_workers'" in check.found
