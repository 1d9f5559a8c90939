"""Support vector machines, trained to their optimum."""
