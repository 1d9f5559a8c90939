"""Accuracies of linear and kernel machines that the paper reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["REPORTED", "Reported"]


@dataclass(frozen=True, slots=True)
class Reported:
    """A row of the paper's tables: best test accuracies in percent."""

    split: Literal["same", "sizes", "subset"]
    """The paper's own rows, as many rows drawn at random, or fewer rows than the paper used."""
    linear: float
    rbf: float | None = None
    gmm: float | None = None
    title: str = ""


REPORTED: Mapping[str, Reported] = {
    "car": Reported("sizes", 71.53, 94.91, 98.96, "Car"),
    "covtype20k": Reported("subset", 62.64, 82.66, 82.65, "Covertype"),
    "ctg": Reported("sizes", 60.59, 89.75, 88.81, "CTG"),
    "ijcnn1val": Reported("subset", 92.56, title="IJCNN"),
    "imageseg": Reported("same", 83.81, 91.38, 95.05, "ImageSeg"),
    "isolet1": Reported("subset", 93.95, 95.55, 95.53, "Isolet"),
    "letter": Reported("same", 61.66, 97.44, 97.26, "Letter"),
    "magic": Reported("sizes", 78.04, 84.43, 87.02, "Magic"),
    "musk": Reported("sizes", 95.09, 99.33, 99.24, "Musk"),
    "pageblocks": Reported("sizes", 95.87, 97.08, 96.56, "PageBlocks"),
    "rcv1": Reported("subset", 97.66, title="RCV1"),
    "robotnavi": Reported("sizes", 69.83, 90.69, 96.85, "RobotNavi"),
    "satimage": Reported("same", 72.45, 85.20, 90.40, "Satimage"),
    "shuttle500": Reported("sizes", 91.81, 99.52, 99.65, "Shuttle500"),
    "skinseg20k": Reported("sizes", 93.36, 99.74, 99.81, "SkinSeg10k"),
    "spambase": Reported("sizes", 85.91, 92.57, 94.17, "SpamBase"),
    "splice": Reported("same", 85.10, 90.02, 95.22, "Splice"),
    "urban": Reported("same", 62.52, 51.48, 66.08, "Urban"),
    "vowel": Reported("sizes", 39.39, 94.70, 96.97, "Vowel"),
    "webspam500": Reported("subset", 93.31, title="Webspam"),
}
