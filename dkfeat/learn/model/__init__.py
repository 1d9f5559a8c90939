"""Linear models: prediction, model folders and scikit-learn pipelines."""
