"""How results show themselves."""

import dkfeat
from tests.engine.helpers import featurized, gcws


def test_repr__of_what_a_call_gives_is_one_short_line(tiny_folder, tmp_path):
    source, target = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=3_000), tmp_path / "features"
    featurized(source, target)
    data = dkfeat.open_shards(target)
    size = f"{sum(entry.size for entry in data.manifest.shards) / 1024:.1f} KiB"
    assert repr(data.manifest) == f"Manifest(number=1, 400 rows, {data.n_shards} shards, {size})"
    plan = dkfeat.plan(source, "there", gcws())
    assert repr(plan) == f"Plan('there', {len(plan.tasks)} tasks, up to {plan.projected_bytes / 2**20:.1f} MiB each)"
    model = dkfeat.train(data, dkfeat.SGD(epochs=1), progress=False)
    assert repr(model) == "LinearModel('binary', 2 classes, 6,144 features of gcws)"
