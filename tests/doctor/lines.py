"""Names of the lines that `dkfeat doctor` always has, in order."""

ALWAYS = ["dkfeat", "packages", "extras", "settings"]
ALWAYS += ["threads", "memory", "temporary files", "cpu", "compile cache", "same bits"]
