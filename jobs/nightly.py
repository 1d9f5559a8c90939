"""Add new files of the sources to data sets: ``python jobs/nightly.py conf/nightly.yaml``."""

from dkfeat.cli.commands.run import script

main = script("nightly")
if __name__ == "__main__":
    main()
