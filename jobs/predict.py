"""Predict for the rows of a job file: ``python jobs/predict.py conf/letter.yaml``."""

from dkfeat.cli.commands.run import script

main = script("predict")
if __name__ == "__main__":
    main()
