"""Features on which linear learning matches kernel machines, block by block on Dask.

Names are loaded when first used: importing dkfeat loads neither Dask nor numba nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "FourierFeatures": "dkfeat.maps.fourier",
    "GCWSFeatures": "dkfeat.maps.gcws",
    "KernelMachine": "dkfeat.learn.kernel_machine",
    "LaplaceFeatures": "dkfeat.maps.laplace",
    "Liblinear": "dkfeat.config.train",
    "LibsvmSource": "dkfeat.io.libsvm.source",
    "MaclaurinFeatures": "dkfeat.maps.maclaurin.features",
    "NystroemFeatures": "dkfeat.maps.nystroem",
    "ParquetSource": "dkfeat.io.parquet.source",
    "SGD": "dkfeat.config.train",
    "Scan": "dkfeat.io.sources.base",
    "abort": "dkfeat.io.commit.maintenance",
    "break_lock": "dkfeat.io.commit.maintenance",
    "clean": "dkfeat.io.commit.maintenance",
    "compare": "dkfeat.learn.compare.compare",
    "datasets": "dkfeat.datasets",
    "errors": "dkfeat.errors",
    "evaluate": "dkfeat.learn.evaluate.evaluate",
    "featurize": "dkfeat.engine.featurize",
    "from_spec": "dkfeat.maps",
    "gram": "dkfeat.engine.gram",
    "kernels": "dkfeat.kernels",
    "load_model": "dkfeat.learn.model",
    "load_pipeline": "dkfeat.learn.pipeline",
    "open_cluster": "dkfeat.engine.clusters.open",
    "open_shards": "dkfeat.engine.dataset.dataset",
    "plan": "dkfeat.engine.plan",
    "plot": "dkfeat.plot",
    "predict": "dkfeat.learn.predict",
    "predict_file": "dkfeat.learn.predict",
    "read_libsvm": "dkfeat.engine.arrays",
    "read_parquet": "dkfeat.engine.arrays",
    "run_report": "dkfeat.report.run_report",
    "scan": "dkfeat.engine.scan",
    "status": "dkfeat.io.commit.status",
    "theory": "dkfeat.theory",
    "train": "dkfeat.learn.train",
    "verify_inputs": "dkfeat.engine.verify_inputs",
}

if TYPE_CHECKING:
    from dkfeat import datasets as datasets
    from dkfeat import errors as errors
    from dkfeat import kernels as kernels
    from dkfeat import plot as plot
    from dkfeat import theory as theory
    from dkfeat.config.train import SGD as SGD
    from dkfeat.config.train import Liblinear as Liblinear
    from dkfeat.engine.arrays import read_libsvm as read_libsvm
    from dkfeat.engine.arrays import read_parquet as read_parquet
    from dkfeat.engine.clusters.open import open_cluster as open_cluster
    from dkfeat.engine.dataset.dataset import open_shards as open_shards
    from dkfeat.engine.featurize import featurize as featurize
    from dkfeat.engine.gram import gram as gram
    from dkfeat.engine.plan import plan as plan
    from dkfeat.engine.scan import scan as scan
    from dkfeat.engine.verify_inputs import verify_inputs as verify_inputs
    from dkfeat.io.commit.maintenance import abort as abort
    from dkfeat.io.commit.maintenance import break_lock as break_lock
    from dkfeat.io.commit.maintenance import clean as clean
    from dkfeat.io.commit.status import status as status
    from dkfeat.io.libsvm.source import LibsvmSource as LibsvmSource
    from dkfeat.io.parquet.source import ParquetSource as ParquetSource
    from dkfeat.io.sources.base import Scan as Scan
    from dkfeat.learn.compare.compare import compare as compare
    from dkfeat.learn.evaluate.evaluate import evaluate as evaluate
    from dkfeat.learn.kernel_machine import KernelMachine as KernelMachine
    from dkfeat.learn.model import load_model as load_model
    from dkfeat.learn.pipeline import load_pipeline as load_pipeline
    from dkfeat.learn.predict import predict as predict
    from dkfeat.learn.predict import predict_file as predict_file
    from dkfeat.learn.train import train as train
    from dkfeat.maps import from_spec as from_spec
    from dkfeat.maps.fourier import FourierFeatures as FourierFeatures
    from dkfeat.maps.gcws import GCWSFeatures as GCWSFeatures
    from dkfeat.maps.laplace import LaplaceFeatures as LaplaceFeatures
    from dkfeat.maps.maclaurin.features import MaclaurinFeatures as MaclaurinFeatures
    from dkfeat.maps.nystroem import NystroemFeatures as NystroemFeatures
    from dkfeat.report.run_report import run_report as run_report

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dkfeat' has no attribute {name!r}")
    home = importlib.import_module(_HOME[name])
    value = home if _HOME[name] == f"dkfeat.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
