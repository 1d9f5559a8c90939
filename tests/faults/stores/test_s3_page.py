"""Commands of docs/how-to/s3.md, run as printed against a store on loopback."""

from __future__ import annotations

import pytest

import dkfeat
from tests.docs.pages import run_page
from tests.faults.stores.bucket import KEY, SECRET


@pytest.mark.slow
def test_s3_page__runs(bucket, store_address, tmp_path, monkeypatch, capsys):
    endpoint = f"http://{store_address}"
    for day in range(3):
        bucket.put(f"days/{day}.svm", f"1 1:{day + 1}\n-1 2:1\n".encode())
    environment = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    run_page(
        "how-to/s3.md", lambda text: text.replace("s3://bucket", bucket.url("")[:-1]).replace("$ENDPOINT", endpoint)
    )
    assert capsys.readouterr().out.split()[0] == "6"
    assert bucket.keys("predictions/_SUCCESS")
    same = [bucket.state(root) for root in ("features", "features-minio", "features-python")]
    assert same[0] == same[1]
    assert same[0][0].keys() == same[2][0].keys()
    assert dkfeat.load_model(bucket.url("model")).classes.tolist() == [-1, 1]
