"""
The score of one row
====================

The contributions of the columns and the intercept sum to the score of a row, without a
remainder. Blue bars speak for a benign tumour, red ones against it. Of the test rows,
this is the one with the least certain score.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import dkfeat
from dkfeat.plot import ExplanationDisplay

table, labels = load_breast_cancer(return_X_y=True, as_frame=True)
train, test = table[:400], table[400:]

gcws = dkfeat.GCWSFeatures(n_components=1024, random_state=0)
model = dkfeat.train(train, y=labels[:400], map=gcws, progress=False)
explanation = dkfeat.explain(model, test)

row = np.argmin(np.abs(model.decision_function(test)))
parts = explanation.contributions[row]
score = explanation.intercept + parts.sum()

display = ExplanationDisplay.from_explanation(explanation, row=row, n_columns=12)
display.ax_.set_title(f"score {float(score):+.3f}")
