"""A data set that the collection does not have, for tests and the processes that they start."""

from dkfeat.datasets import DATASETS, DataFile, DatasetInfo, fetch

TRAIN = "".join(f"{row % 3} 1:{row} 7:0.5\n" for row in range(60_000)).encode()
TEST = TRAIN[: TRAIN.index(b"\n", 20_000) + 1]
PATH = "multiclass/toy.scale"
PLACE = f"/{PATH}"


def toy():
    train = DataFile(path=PATH, rows=60_000)
    test = DataFile(path=f"{PATH}.t.bz2", rows=TEST.count(b"\n"))
    return DatasetInfo(name="toy", title="a toy", n_features=7, n_classes=3, train=train, test=test)


def fetch_train(url, folder):
    DATASETS["toy"] = toy()
    fetch("toy", part="train", folder=folder, mirror=url)
