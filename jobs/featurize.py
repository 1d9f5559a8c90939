"""Featurize the sources of a job file: ``python jobs/featurize.py conf/letter.yaml``."""

from dkfeat.cli.commands.run import script

main = script("featurize")
if __name__ == "__main__":
    main()
