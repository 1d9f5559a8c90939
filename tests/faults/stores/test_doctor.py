"""Results of the doctor for object stores that work, that forbid requests, and that ignore exclusive creation."""

import pytest

from dkfeat.doctor.checks import check_store
from tests.faults.stores.bucket import SECRET


def check(bucket, options):
    (found,) = check_store(bucket.url("features"), options)
    assert SECRET not in found.found
    return found


def test_store__that_is_well_is_left_empty(bucket, options):
    found = check(bucket, options)
    assert found.state == "ok", found.found
    assert bucket.keys() == []


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("403", ("403 AccessDenied", "allow reading, listing, writing and deleting")),
        ("overwrite", ("a file was created twice; this storage cannot exclude a second writer",)),
        ("no bucket", ("check that the bucket exists",)),
    ],
)
def test_store__that_is_not_well_fails_with_what_it_says(bucket, options, proxy, trouble, words):
    if trouble == "no bucket":
        bucket.client.delete_bucket(Bucket=bucket.name)
    else:
        proxy.add(trouble, method="PUT")
    found = check(bucket, options)
    assert (found.state, found.exit_code) == ("fail", 3)
    assert all(text in found.found for text in words)
    assert trouble == "no bucket" or bucket.keys() == []
