"""Results of the doctor for object stores that work, that forbid requests, and that ignore exclusive creation."""

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


def test_store__that_forbids_fails_with_what_it_says(bucket, options, proxy):
    proxy.add(403, method="PUT")
    found = check(bucket, options)
    assert (found.state, found.exit_code) == ("fail", 3)
    assert "403 AccessDenied" in found.found
    assert "allow reading, listing, writing and deleting" in found.found


def test_store__without_its_bucket_fails(bucket, options):
    bucket.client.delete_bucket(Bucket=bucket.name)
    found = check(bucket, options)
    assert (found.state, found.exit_code) == ("fail", 3)
    assert "check that the bucket exists" in found.found


def test_store__that_overwrites_fails(bucket, options, proxy):
    proxy.add("overwrite", method="PUT")
    found = check(bucket, options)
    assert (found.state, found.exit_code) == ("fail", 3)
    assert "a file was created twice; this storage cannot exclude a second writer" in found.found
    assert bucket.keys() == []
