"""Resolution of a run: arguments, inherited settings, defaults and the fitted map."""
