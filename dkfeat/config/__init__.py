"""Job settings: frozen dataclasses read strictly from plain mappings, as YAML gives them."""

from __future__ import annotations

from dkfeat.config.execution import (
    ClusterConfig,
    DefaultsConfig,
    ExecutionConfig,
    KubernetesClusterConfig,
    LocalClusterConfig,
    SlurmClusterConfig,
    SSHClusterConfig,
    load_cluster,
)
from dkfeat.config.job import (
    DuplicatesConfig,
    EvaluateConfig,
    FeaturizeConfig,
    JobConfig,
    MapConfig,
    NeighborsConfig,
    PredictConfig,
    RunConfig,
    SourceConfig,
    load_config,
)
from dkfeat.config.train import TrainConfig

__all__ = [
    "ClusterConfig",
    "DefaultsConfig",
    "DuplicatesConfig",
    "EvaluateConfig",
    "ExecutionConfig",
    "FeaturizeConfig",
    "JobConfig",
    "KubernetesClusterConfig",
    "LocalClusterConfig",
    "MapConfig",
    "NeighborsConfig",
    "PredictConfig",
    "RunConfig",
    "SSHClusterConfig",
    "SlurmClusterConfig",
    "SourceConfig",
    "TrainConfig",
    "load_cluster",
    "load_config",
]
