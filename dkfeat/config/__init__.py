"""Settings of job files, clusters and defaults: frozen dataclasses, read strictly from plain mappings as YAML gives."""

from __future__ import annotations

from dkfeat.config.execution import ClusterConfig as ClusterConfig
from dkfeat.config.execution import DefaultsConfig as DefaultsConfig
from dkfeat.config.execution import ExecutionConfig as ExecutionConfig
from dkfeat.config.execution import LocalClusterConfig as LocalClusterConfig
from dkfeat.config.execution import SlurmClusterConfig as SlurmClusterConfig
from dkfeat.config.execution import load_cluster as load_cluster
from dkfeat.config.job import DuplicatesConfig as DuplicatesConfig
from dkfeat.config.job import EvaluateConfig as EvaluateConfig
from dkfeat.config.job import FeaturizeConfig as FeaturizeConfig
from dkfeat.config.job import JobConfig as JobConfig
from dkfeat.config.job import MapConfig as MapConfig
from dkfeat.config.job import NeighborsConfig as NeighborsConfig
from dkfeat.config.job import PredictConfig as PredictConfig
from dkfeat.config.job import RunConfig as RunConfig
from dkfeat.config.job import SourceConfig as SourceConfig
from dkfeat.config.job import load_config as load_config
from dkfeat.config.train import TrainConfig as TrainConfig
