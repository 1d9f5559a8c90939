from pathlib import Path

import dask
import pytest
import yaml

from dkfeat.config import LocalClusterConfig, SlurmClusterConfig, load_cluster
from dkfeat.config.execution import CLUSTERS, read_cluster
from dkfeat.engine.clusters.open import slurm_keywords
from dkfeat.errors import ConfigError

FILES = Path(__file__).parents[2] / "conf" / "cluster"

OF_CLUSTER = ("n_workers", "scheduler_options", "silence_logs")
"""Keywords of a cluster of jobs that are none of each job."""
SLURM = {"kind": "slurm", "n_workers": 6, "threads_per_worker": 4, "memory_limit": "8GiB"}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_conf_cluster__commented_settings_exist(kind):
    """What a reader uncomments is a setting of the kind, and of the right type."""
    config = load_cluster(FILES / f"{kind}.yaml")
    assert read_cluster(config.to_mapping()) == config
    lines = (FILES / f"{kind}.yaml").read_text().splitlines()
    commented = [
        line[2:] for line in lines if line.startswith("# ") and ": " in line and line[2:].split(":")[0].islower()
    ]
    commented = [line for line in commented if " " not in line.split(":")[0]]
    given = yaml.safe_load("\n".join(line for line in lines if not line.startswith("#")))
    assert read_cluster({**given, **yaml.safe_load("\n".join(commented) or "{}")}).kind == kind


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (["slurm"], "expected keys and values, one of them `kind`"),
        ({"n_workers": 2}, "kind must be given: local, slurm"),
        ({"kind": "slrum"}, "did you mean 'slurm'"),
        ({"kind": ["slurm"]}, "no cluster of kind"),
        ({**SLURM, "wall_time": "1:00"}, "wall_time: unknown key; did you mean 'walltime'"),
        ({**SLURM, "walltime": 7200}, "put it in quotes, as in '02:00:00'"),
        ({**SLURM, "n_workers": 0}, "n_workers=0, but it must be at least 1"),
        ({**SLURM, "workers_per_job": 0}, "workers_per_job=0"),
        ({**SLURM, "start_seconds": 0}, "start_seconds=0"),
        ({"kind": "slurm", "n_workers": 6}, "threads_per_worker, memory_limit must be given"),
        ({"kind": "local", "queue": "q"}, "queue: unknown key"),
        ({**SLURM, "job_extra_directives": "--exclusive"}, "job_extra_directives: expected a list, got"),
    ],
)
def test_read_cluster__refuses(mapping, words):
    with pytest.raises(ConfigError, match=words):
        read_cluster(mapping)


def test_sized__stands_in_place_of_the_file():
    config = LocalClusterConfig(n_workers=2, memory_limit="1GiB")
    assert config.sized(n_workers=3, threads_per_worker=None) == LocalClusterConfig(n_workers=3, memory_limit="1GiB")
    with pytest.raises(ConfigError, match="n_workers=0"):
        config.sized(n_workers=0)


@pytest.mark.parametrize(("mapping", "threads"), [(SLURM, 24), ({"kind": "local", "n_workers": 2}, None)])
def test_n_threads__as_the_settings_ask(mapping, threads):
    assert read_cluster(mapping).n_threads == threads


def test_slurm_keywords__make_the_job_script(tmp_path, monkeypatch):
    slurm = pytest.importorskip("dask_jobqueue.slurm", reason="dask-jobqueue is not installed")
    monkeypatch.chdir(tmp_path)
    config = SlurmClusterConfig.from_mapping(
        {
            **SLURM,
            "workers_per_job": 3,
            "queue": "compute",
            "account": "project-7",
            "walltime": "02:00:00",
            "local_directory": "/scratch",
            "log_directory": "logs",
            "python": "/srv/python",
            "job_extra_directives": ["--exclusive"],
            "job_script_prologue": ["module load gcc"],
        }
    )
    keywords = slurm_keywords(config)
    of_job = {name: value for name, value in keywords.items() if name not in OF_CLUSTER}
    lines = slurm.SLURMJob(scheduler="tcp://10.0.0.1:8786", name="w", **of_job).job_script().splitlines()
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {"-J dkfeat", "-p compute", "-A project-7", "--cpus-per-task=12", "--mem=27034M"} <= set(directives)
    assert {"-t 02:00:00", "--exclusive", "-e logs/dkfeat-%J.err"} <= set(directives)
    assert "module load gcc" in lines
    start = "/srv/python -m distributed.cli.dask_worker tcp://10.0.0.1:8786 --name w"
    assert lines[-1].startswith(f"{start} --nthreads 4 --memory-limit 8.00GiB --nworkers 3 --nanny")
    assert "--local-directory /scratch" in lines[-1]
    assert keywords["n_workers"] == 6


def test_slurm_keywords__leave_to_dask_what_is_left_out():
    keywords = slurm_keywords(SlurmClusterConfig.from_mapping(SLURM))
    with dask.config.set({"jobqueue.slurm.job-mem": "100G"}):
        assert "job_mem" in keywords.keys() - slurm_keywords(SlurmClusterConfig.from_mapping(SLURM)).keys()
    assert {"queue", "account", "walltime", "python", "job_extra_directives"}.isdisjoint(keywords)
    assert keywords["scheduler_options"] == {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
