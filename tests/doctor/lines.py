"""Names of the lines that `dkfeat doctor` always has, in order."""

ALWAYS = ["dkfeat", "compiled loops", "same bits"]
