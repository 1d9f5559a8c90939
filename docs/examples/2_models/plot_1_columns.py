"""
Columns that matter
===================

Each code of `dkfeat.GCWSFeatures` comes from one column of its row, so a score is a sum
over columns, exactly. The importance of a column is the mean size of its part, as it
differs from the column's mean.
"""

from sklearn.datasets import load_breast_cancer

import dkfeat
from dkfeat.plot import ExplanationDisplay

table, labels = load_breast_cancer(return_X_y=True, as_frame=True)
train, test = table[:400], table[400:]

gcws = dkfeat.GCWSFeatures(n_components=1024, random_state=0)
model = dkfeat.train(train, y=labels[:400], map=gcws, progress=False)
explanation = dkfeat.explain(model, test, background=train)

display = ExplanationDisplay.from_explanation(explanation, n_columns=12)
display.ax_.set_title("Diagnosis of a tumour: importances of columns")
