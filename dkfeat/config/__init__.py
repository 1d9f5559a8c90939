"""Job settings: frozen dataclasses read strictly from plain mappings, as YAML gives them."""

from __future__ import annotations

from dkfeat.config.cluster import (
    ClusterConfig,
    KubernetesClusterConfig,
    LocalClusterConfig,
    SlurmClusterConfig,
    SSHClusterConfig,
    load_cluster,
)
from dkfeat.config.defaults import DefaultsConfig
from dkfeat.config.featurize import FeaturizeConfig, MapConfig
from dkfeat.config.job import JobConfig, RunConfig, load_config
from dkfeat.config.predict import EvaluateConfig, PredictConfig
from dkfeat.config.source import SourceConfig
from dkfeat.config.train import TrainConfig

__all__ = [
    "ClusterConfig",
    "DefaultsConfig",
    "EvaluateConfig",
    "FeaturizeConfig",
    "JobConfig",
    "KubernetesClusterConfig",
    "LocalClusterConfig",
    "MapConfig",
    "PredictConfig",
    "RunConfig",
    "SSHClusterConfig",
    "SlurmClusterConfig",
    "SourceConfig",
    "TrainConfig",
    "load_cluster",
    "load_config",
]
