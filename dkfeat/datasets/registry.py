"""Which public data sets there are: where they lie and what they hold, as the LIBSVM collection says."""

from __future__ import annotations

from dataclasses import dataclass

from dkfeat.errors import ConfigError
from dkfeat.wording import nearest

__all__ = ["COLLECTION", "DATASETS", "DataFile", "DatasetInfo", "find_dataset"]

COLLECTION = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
"""Address of the collection; the paths of files begin there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of the collection."""

    path: str
    """Where it lies below the collection's address; it ends in how it is compressed."""
    rows: int
    """Rows it holds; a file with another number of them is refused."""
    size: int | None = None
    """Bytes as it lies there, where that is known for certain."""
    sha256: str | None = None
    """Digest of those bytes, where that is known for certain."""

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What is known of a data set before it is fetched."""

    name: str
    """What `fetch` calls it."""
    title: str
    """What it is about."""
    n_features: int
    """Columns, over both files."""
    n_classes: int
    """Different labels."""
    train: DataFile
    """Rows to learn from; all rows, where the collection does not divide the set."""
    test: DataFile | None = None
    """Held-out rows, where the collection has them in a file of their own."""

    @property
    def page(self) -> str:
        """Page of the collection that describes it and names its origin and terms."""
        return f"{COLLECTION}/{self.train.path.partition('/')[0]}.html"

    @property
    def files(self) -> dict[str, DataFile]:
        """Its files by part, "train" and, where there is one, "test"."""
        return {"train": self.train} | ({"test": self.test} if self.test is not None else {})


def _dataset(
    name: str,
    title: str,
    n_features: int,
    n_classes: int,
    train: tuple[str, int],
    test: tuple[str, int] | None = None,
) -> DatasetInfo:
    return DatasetInfo(
        name=name,
        title=title,
        n_features=n_features,
        n_classes=n_classes,
        train=DataFile(path=train[0], rows=train[1]),
        test=None if test is None else DataFile(path=test[0], rows=test[1]),
    )


_ALL = (
    _dataset("a9a", "income of adults, as 0 and 1", 123, 2, ("binary/a9a", 32_561), ("binary/a9a.t", 16_281)),
    _dataset("cod-rna", "non-coding RNA in genomes", 8, 2, ("binary/cod-rna", 59_535), ("binary/cod-rna.t", 271_617)),
    _dataset("connect-4", "positions of a game", 126, 3, ("multiclass/connect-4", 67_557)),
    _dataset("covtype", "forest cover, 7 kinds", 54, 7, ("multiclass/covtype.bz2", 581_012)),
    _dataset("covtype.binary", "forest cover, 2 kinds", 54, 2, ("binary/covtype.libsvm.binary.bz2", 581_012)),
    _dataset(
        "dna",
        "junctions in DNA, as 0 and 1",
        180,
        3,
        ("multiclass/dna.scale", 2_000),
        ("multiclass/dna.scale.t", 1_186),
    ),
    _dataset(
        "gisette",
        "digits 4 and 9, scaled",
        5_000,
        2,
        ("binary/gisette_scale.bz2", 6_000),
        ("binary/gisette_scale.t.bz2", 1_000),
    ),
    _dataset("higgs", "Higgs bosons, simulated", 28, 2, ("binary/HIGGS.xz", 11_000_000)),
    _dataset("ijcnn1", "an engine's signals", 22, 2, ("binary/ijcnn1.bz2", 49_990), ("binary/ijcnn1.t.bz2", 91_701)),
    _dataset(
        "letter",
        "capital letters, scaled",
        16,
        26,
        ("multiclass/letter.scale", 15_000),
        ("multiclass/letter.scale.t", 5_000),
    ),
    _dataset(
        "mnist",
        "handwritten digits, grey values",
        780,
        10,
        ("multiclass/mnist.bz2", 60_000),
        ("multiclass/mnist.t.bz2", 10_000),
    ),
    _dataset("mnist8m", "handwritten digits, distorted", 784, 10, ("multiclass/mnist8m.xz", 8_100_000)),
    _dataset(
        "news20",
        "20 newsgroups, counts of words",
        62_061,
        20,
        ("multiclass/news20.bz2", 15_935),
        ("multiclass/news20.t.bz2", 3_993),
    ),
    _dataset("news20.binary", "20 newsgroups in two halves", 1_355_191, 2, ("binary/news20.binary.bz2", 19_996)),
    _dataset(
        "pendigits",
        "digits written with a pen",
        16,
        10,
        ("multiclass/pendigits", 7_494),
        ("multiclass/pendigits.t", 3_498),
    ),
    _dataset(
        "protein",
        "structure of proteins",
        357,
        3,
        ("multiclass/protein.bz2", 17_766),
        ("multiclass/protein.t.bz2", 6_621),
    ),
    _dataset(
        "rcv1",
        "news by Reuters, tf-idf of words",
        47_236,
        2,
        ("binary/rcv1_train.binary.bz2", 20_242),
        ("binary/rcv1_test.binary.bz2", 677_399),
    ),
    _dataset("real-sim", "newsgroups, real or simulated", 20_958, 2, ("binary/real-sim.bz2", 72_309)),
    _dataset(
        "satimage",
        "pictures from a satellite, scaled",
        36,
        6,
        ("multiclass/satimage.scale", 4_435),
        ("multiclass/satimage.scale.t", 2_000),
    ),
    _dataset(
        "sector",
        "companies' web pages, scaled",
        55_197,
        105,
        ("multiclass/sector/sector.scale.bz2", 6_412),
        ("multiclass/sector/sector.t.scale.bz2", 3_207),
    ),
    _dataset(
        "sensit",
        "vehicles by sound and tremor",
        100,
        3,
        ("multiclass/vehicle/combined.bz2", 78_823),
        ("multiclass/vehicle/combined.t.bz2", 19_705),
    ),
    _dataset(
        "shuttle",
        "a space shuttle's sensors, scaled",
        9,
        7,
        ("multiclass/shuttle.scale", 43_500),
        ("multiclass/shuttle.scale.t", 14_500),
    ),
    _dataset("skin", "skin or not, by colour", 3, 2, ("binary/skin_nonskin", 245_057)),
    _dataset("splice", "junctions in DNA", 60, 2, ("binary/splice", 1_000), ("binary/splice.t", 2_175)),
    _dataset("susy", "supersymmetry, simulated", 18, 2, ("binary/SUSY.xz", 5_000_000)),
    _dataset("url", "web addresses, malicious or not", 3_231_961, 2, ("binary/url_combined.bz2", 2_396_130)),
    _dataset("usps", "digits on letters", 256, 10, ("multiclass/usps.bz2", 7_291), ("multiclass/usps.t.bz2", 2_007)),
    _dataset(
        "vowel",
        "vowels of several speakers, scaled",
        10,
        11,
        ("multiclass/vowel.scale", 528),
        ("multiclass/vowel.scale.t", 462),
    ),
    _dataset("w8a", "web pages, words as 0 and 1", 300, 2, ("binary/w8a", 49_749), ("binary/w8a.t", 14_951)),
    _dataset("webspam", "web pages, spam or not", 254, 2, ("binary/webspam_wc_normalized_unigram.svm.xz", 350_000)),
)

DATASETS = {info.name: info for info in _ALL}
"""The data sets by name."""


def find_dataset(name: str) -> DatasetInfo:
    """Look a data set up by its name.

    Raises
    ------
    ConfigError
        If there is none; the nearest name is offered.

    Examples
    --------
    >>> find_dataset("letter").train.rows
    15000
    >>> find_dataset("leter")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: there is no data set 'leter'; did you mean 'letter'?
    """
    if name not in DATASETS:
        message = f"there is no data set {name!r}; {nearest(str(name).lower(), list(DATASETS), 'data sets')}"
        raise ConfigError(message)
    return DATASETS[name]
