"""
Near copies in a collection of texts
====================================

The texts are the documentation of the functions and methods of ``scipy.stats``, many of
which follow a template. Two texts are similar if they share many runs of five words.
`dkfeat.neighbors.duplicates` finds the similar pairs without a comparison of all pairs,
and joins them to groups, of which the first text is kept.
"""

import inspect
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

import dkfeat

functions = [getattr(stats, name) for name in stats.__all__]
functions = [function for function in functions if callable(function)]
members = [
    getattr(owner, name) for owner in functions for name in dir(owner) if name[0] != "_"
]
bodies = {
    inspect.getdoc(member) or "" for member in functions + members
}  # each text once
texts = pd.DataFrame(
    {"body": sorted(body for body in bodies if len(body.split()) >= 30)}
)

with TemporaryDirectory() as folder:
    source, target = dkfeat.TableSource(texts, label=None), Path(folder) / "sketches"
    minhash = dkfeat.MinHashFeatures(n_components=256, random_state=0)
    dkfeat.featurize(
        source, target, minhash, encoder=dkfeat.Text("body", "word 5"), progress=False
    )
    found = dkfeat.neighbors.duplicates(target, threshold=0.5, progress=False)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
left.hist(found.similarities, bins=np.linspace(0.5, 1, 26))
left.set(
    xlabel="estimated resemblance",
    ylabel="pairs",
    title=f"{len(found.pairs):,} pairs of {len(texts):,} texts",
)
sizes = np.unique(found.groups, return_counts=True)[1]
right.hist(sizes, bins=np.arange(0.5, sizes.max() + 1), log=True)
right.set(
    xlabel="texts in a group",
    ylabel="groups",
    title=f"{found.kept.sum():,} texts are kept",
)
