import hashlib
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.canonical import canonical_json, fingerprint

leaves = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def exact(value):
    """The value with its types and every bit visible, written without the module under test."""
    if isinstance(value, float):
        return ("float", math.copysign(1, value), value)
    if isinstance(value, list):
        return ("list", tuple(exact(item) for item in value))
    if isinstance(value, dict):
        return ("dict", tuple(sorted((key, exact(item)) for key, item in value.items())))
    return (type(value).__name__, value)


@given(plain, plain)
def test_canonical_json__is_equal_exactly_when_the_values_are(a, b):
    assert (canonical_json(a) == canonical_json(b)) == (exact(a) == exact(b))


@given(plain)
def test_canonical_json__is_ascii_json_without_blanks_that_ignores_key_order(value):
    text = canonical_json(value)
    assert text.isascii()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(value.items()))) == text


def test_canonical_json__tells_integers_from_floats():
    assert canonical_json([1, 1.0, True]) == '[1,{"float":"0x1.0000000000000p+0"},true]'


@pytest.mark.parametrize(
    ("value", "error"),
    [(math.nan, ValueError), (math.inf, ValueError), ({1: 2}, TypeError), ({"float": "0x1p+0"}, ValueError)],
)
def test_canonical_json__refuses_what_it_cannot_hold(value, error):
    with pytest.raises(error, match="canonical JSON"):
        canonical_json({"nested": [value]})


def test_canonical_json__refuses_arbitrary_objects():
    with pytest.raises(TypeError, match="cannot hold object"):
        canonical_json(object())


def test_fingerprint__is_the_sha256_of_the_text():
    assert fingerprint({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


FIRST_USES = """
import sys, threading
from dataclasses import make_dataclass
from dkfeat.canonical import Count, Name, typed

sys.setswitchinterval(1e-6)
values = {f"a{i}": 1 if i % 2 else "x" for i in range(20)}
fields = [(name, Count if value == 1 else Name) for name, value in values.items()]
kinds = [make_dataclass(f"Record{i}", fields, slots=True) for i in range(200)]
barrier = threading.Barrier(8)

def work():
    for kind in kinds:
        barrier.wait()
        typed(values, kind, "x")

threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_typed__first_uses_of_a_type_in_many_threads_at_once():
    assert subprocess.run([sys.executable, "-c", FIRST_USES], timeout=100, check=False).returncode == 0


SMALL_MEMORY = """
import resource, sys
from dkfeat.canonical import parse_object
text = b'{"shards":[' + b",".join([b'{"name":"a","size":1}'] * 3_000_000) + b"]}"
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
try:
    parse_object(text, "manifest-000001.json")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits and the /proc of Linux")
def test_parse_object__beyond_the_memory_says_so():
    done = subprocess.run([sys.executable, "-c", SMALL_MEMORY], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("ShardError manifest-000001.json: the memory that this process may use is too small")
