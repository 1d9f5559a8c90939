"""Evaluate the models of a job file: ``python jobs/evaluate.py conf/letter.yaml``."""

from dkfeat.cli.commands.run import script

main = script("evaluate")
if __name__ == "__main__":
    main()
