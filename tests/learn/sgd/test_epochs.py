from dkfeat.learn.sgd import epochs as epoch_lines


def test_epoch_lines__show_the_first_the_last_and_one_every_few_seconds(monkeypatch, capsys):
    seconds = [0.0]
    monkeypatch.setattr(epoch_lines.time, "monotonic", lambda: seconds[0])
    lines = epoch_lines.EpochLines(9)
    for epoch in range(1, 10):
        seconds[0] += 2.0
        lines({"epoch": epoch, "rows": 100, "test_accuracy": 0.5})
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in shown] == ["1", "4", "7", "9"]
    assert shown[0] == "train: epoch 1 of 9, test accuracy 50.00%, 50 rows/s"
