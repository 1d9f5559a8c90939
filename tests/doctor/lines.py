"""Names of the lines that `dkfeat doctor` always has, in order."""

ALWAYS = ["dkfeat", "threads", "memory", "temporary files", "compiled loops", "same bits"]
