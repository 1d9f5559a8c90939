"""Train the model of a job file: ``python jobs/train.py conf/letter.yaml``."""

from dkfeat.cli.commands.run import script

main = script("train")
if __name__ == "__main__":
    main()
