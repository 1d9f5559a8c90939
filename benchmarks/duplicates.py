"""Duplicates from the codes of shards: rows per second of one core beside datasketch, and recall beside the S-curve.

    DKFEAT_DATA=DIR python benchmarks/duplicates.py [--quick]

1. Speed. `dkfeat.neighbors.duplicates` reads shards of 8-bit codes; datasketch's MinHashLSH gets the same codes and
   bands in memory, and is asked for each row after all are in it. Processor time, the least of repeats.
2. Recall of planted near copies: the values of a tenth of the rows are those of other rows, multiplied by lognormal
   noise of five strengths; a twentieth of the rows are copies.
3. Duplicates of real data sets. Copies, which have equal values in all columns, are counted by hashing the rows. Near
   copies are the pairs of the first rows whose exact min-max (GMM) kernel is at least 0.9.
4. A night. To two million planted rows with 256 codes 1 % is added: the search that joins the new rows to the result of
   before, beside a search of all rows, both in folders; and the bytes that stay for the next one.
5. Growth. Processor time of 100,000 and 800,000 rows with 256 codes, a fifth of them copies and a tenth near copies.

Recall counts the pairs whose codes agree at least at the rate of the threshold. The S-curve is its expectation: the
mean of `dkfeat.theory.bands.sharing_probability` at these pairs' rates. It takes codes as independent; if so many of a
row's codes are equal, recall is up to 0.011 higher. In real sets where most rows are near copies, not all candidates
are compared, and `connected` counts the pairs that other rows connect. The exit status is 1 if a target is missed.
Needs the extra `bench`.
"""

import argparse
import lzma
import os
import shutil
import sys
import tempfile
from pathlib import Path

import dask
import numpy as np
import scipy.sparse as sp
from datasketch import MinHash, MinHashLSH
from marks import Report
from paired import cpu_seconds
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import dkfeat
from dkfeat.compiled.sampling.codes import count_pair_matches
from dkfeat.kernels import gmm
from dkfeat.neighbors import Duplicates, duplicates
from dkfeat.theory.bands import sharing_probability

THRESHOLD, NONZEROS, COLUMNS = 0.8, 10, 100_000
N_COMPONENTS, ROWS_PER_SECOND, RECALL_LOSS, NIGHT, EXPONENT = (128, 512), 0.5e6, 0.01, 0.05, 1.1
NOISE = {0.95: 0.064, 0.9: 0.132, 0.8: 0.28, 0.7: 0.448, 0.5: 0.864}  # by mean similarity of a near copy
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
NEAR, COMPARED_ROWS = 0.9, 2000  # of real sets
MANY = 1000  # pairs of which a recall is compared with its target


REPORT = Report("duplicates")


def planted(n_rows: int, copied: float = 0.05) -> tuple[sp.csr_matrix, np.ndarray]:
    """Make rows; also give the pairs of near copies, shape (strengths, pairs, 2), by descending similarity."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, COLUMNS, (n_rows, NONZEROS)) // NONZEROS * NONZEROS + np.arange(NONZEROS))
    values = rng.lognormal(size=columns.shape)
    order = rng.permutation(n_rows)
    near, copies, _ = np.split(order, [n_rows // 10, n_rows // 10 + round(copied * n_rows)])
    originals = order[n_rows // 2 :]
    of_near, of_copies = (rng.choice(originals, len(some), replace=False) for some in (near, copies))
    columns[near], columns[copies], values[copies] = columns[of_near], columns[of_copies], values[of_copies]
    noise = np.repeat(list(NOISE.values()), len(near) // len(NOISE))[:, None]
    values[near] = values[of_near] * np.exp(noise * rng.standard_normal(values[near].shape))
    bounds = np.arange(n_rows + 1) * NONZEROS
    X = sp.csr_matrix((values.astype(np.float32).ravel(), columns.ravel(), bounds), shape=(n_rows, COLUMNS))
    return X, np.column_stack([near, of_near]).reshape(len(NOISE), -1, 2)


def featurized(source: dkfeat.LibsvmSource, folder: Path, n_components: int):
    dkfeat.featurize(source, folder, dkfeat.DartFeatures(n_components, random_state=0), progress=False)
    return dkfeat.open_shards(folder)


def datasketch_us(codes: np.ndarray, bands: tuple[int, int]) -> float:
    """Measure an insert and a query of a row, in microseconds."""
    sketches = [MinHash(num_perm=codes.shape[1]) for _ in codes]
    for sketch, row in zip(sketches, codes.astype(np.uint64), strict=True):
        sketch.hashvalues = row

    def find() -> None:
        index = MinHashLSH(num_perm=codes.shape[1], params=bands)
        for row, sketch in enumerate(sketches):
            index.insert(row, sketch)
        for sketch in sketches:
            index.query(sketch)

    return min(cpu_seconds(find) for _ in range(2)) / len(codes) * 1e6


def speed(data, n_peer: int, repeats: int) -> dict:
    results = []
    seconds = [
        cpu_seconds(lambda: results.append(duplicates(data, THRESHOLD, progress=False))) for _ in range(1 + repeats)
    ][1:]
    bands = results[-1].bands
    ours, peer = min(seconds) / data.n_rows * 1e6, datasketch_us(data.codes().codes[:n_peer], bands)
    return REPORT.emit(
        "speed",
        rows=data.n_rows,
        codes=data.map.n_components,
        bands=list(bands),
        rows_per_second=round(1e6 / ours),
        datasketch_us=round(peer, 1),
        ratio=round(peer / ours, 1),
    )


def night(folder: Path, n_rows: int) -> dict:
    X, _ = planted(n_rows)
    source = dkfeat.LibsvmSource(folder / "*.svm", n_features=COLUMNS, zero_based=True)
    earlier, seconds = folder / "earlier", {"night": [], "all rows": []}
    for number, some in enumerate(np.split(np.arange(n_rows), [n_rows - n_rows // 100])):
        dump_svmlight_file(X[some], np.ones(len(some)), str(folder / f"{number}.svm"), zero_based=True)
        data = featurized(source, folder / "features", 256)
        if number == 0:
            duplicates(data, THRESHOLD, target=earlier, progress=False)
    for repeat in range(3):
        for name, of_name in seconds.items():
            target = folder / f"{name} {repeat}"
            if name == "night":
                shutil.copytree(earlier, target)
            of_name.append(
                cpu_seconds(lambda target=target: duplicates(data, THRESHOLD, target=target, progress=False))
            )
    new, full = (min(of_name) for of_name in seconds.values())
    stays = sum(path.stat().st_size for path in (folder / "night 0" / "index").rglob("*"))
    values = {"seconds": round(new, 3), "of_all_rows": round(full, 3), "share": round(new / full, 4)}
    return REPORT.emit("night", rows=n_rows, new_rows=n_rows // 100, **values, bytes_a_row=round(stays / n_rows))


def growth(folder: Path, sizes: tuple[int, int]) -> dict:
    seconds = []
    for n_rows in sizes:
        X, _ = planted(n_rows, copied=0.2)
        dump_svmlight_file(X, np.ones(n_rows), str(folder / "rows.svm"), zero_based=True)
        source = dkfeat.LibsvmSource(folder / "rows.svm", n_features=COLUMNS, zero_based=True)
        data = featurized(source, folder / str(n_rows), 256)
        seconds.append(
            min(cpu_seconds(lambda data=data: duplicates(data, THRESHOLD, progress=False)) for _ in range(4))
        )
    exponent = np.log(seconds[1] / seconds[0]) / np.log(sizes[1] / sizes[0])
    return REPORT.emit("growth", rows=sizes, seconds=[round(each, 2) for each in seconds], exponent=round(exponent, 3))


def recall_of(data, found: Duplicates, threshold: float, pairs: np.ndarray) -> dict:
    """Compare the shares of the pairs that are found, and that are in one group, with the S-curve."""
    counts = count_pair_matches(data.codes().codes, *pairs.T.copy(), data.map.n_components, data.map.code_bits)
    estimates = data.map._similarity_of_counts(counts)
    pairs, estimates = pairs[estimates >= threshold], estimates[estimates >= threshold]
    if not len(pairs):
        return {"pairs": 0}
    lowest = np.arange(data.n_rows)  # with equal codes: only this row is in other pairs
    copies = found.pairs[found.similarities == 1]
    lowest[copies[:, 1]] = copies[:, 0]
    left, right = np.sort(lowest[pairs]).T
    is_found = np.isin(left * data.n_rows + right, found.pairs @ [data.n_rows, 1]) | (left == right)
    curve = sharing_probability(np.minimum(estimates, 1), *found.bands, data.map.chance)
    means = {"recall": is_found, "s_curve": curve, "connected": found.groups[left] == found.groups[right]}
    return {"pairs": len(pairs), **{name: round(float(values.mean()), 4) for name, values in means.items()}}


def recalls(data, pairs: np.ndarray) -> list[dict]:
    records = []
    for threshold in THRESHOLDS:
        found = duplicates(data, threshold, progress=False)
        head = {"codes": data.map.n_components, "threshold": threshold, "bands": list(found.bands)}
        for similarity, of_strength in zip(NOISE, pairs, strict=True):
            measured = recall_of(data, found, threshold, of_strength)
            records.append(REPORT.emit("recall", **head, similarity=similarity, **measured))
    return records


def real_set(name: str, path: Path, folder: Path) -> dict:
    """Count copies and near copies of a set by brute force, and compare with those that are found."""
    with lzma.open(path) as file:
        X = load_svmlight_file(file, dtype=np.float32)[0]
    rows = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in zip(X.indptr, X.indptr[1:], strict=False)]
    lowest: dict[bytes, int] = {}
    first = np.array([lowest.setdefault(row, at) for at, row in enumerate(rows)])
    is_copy = (first != np.arange(len(rows))) & (np.diff(X.indptr) > 0)
    data = featurized(dkfeat.LibsvmSource(path, zero_based=False), folder / name, 512)
    equal = duplicates(data, 1.0, progress=False)
    found = duplicates(data, NEAR, progress=False)
    kernel = np.triu(gmm(X[:COMPARED_ROWS]), 1)
    return REPORT.emit(
        "set",
        set=name,
        rows=data.n_rows,
        copies=int(is_copy.sum()),
        copies_found=int((equal.groups[is_copy] == equal.groups[first[is_copy]]).sum()),
        equal_codes=int((~equal.kept).sum()),
        near_copies=int((~found.kept).sum()),
        compared=round(found.n_compared / found.n_candidates, 3) if found.n_candidates else 1.0,
        exact_pairs=int((kernel >= NEAR).sum()),
        **recall_of(data, found, NEAR, np.argwhere(kernel >= NEAR - 0.1)),
    )


def print_table(records: list[dict]) -> None:
    print(f"\n{'recall / S-curve':<22}" + "".join(f"{similarity:>17}" for similarity in NOISE))
    for at in range(0, len(records), len(NOISE)):
        of_bands = records[at : at + len(NOISE)]
        cells = [f"{r['recall']:.4f} / {r['s_curve']:.4f}" if r["pairs"] >= MANY else "-" for r in of_bands]
        print(
            f"k = {of_bands[0]['codes']}, threshold {of_bands[0]['threshold']:<5}"
            + "".join(f"{cell:>17}" for cell in cells)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows: a check that it runs, not a measurement")
    quick = parser.parse_args().quick
    sets = Path(os.environ.get("DKFEAT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    paths = {path.parent.name: path for path in sorted(sets.glob("*/train.svm.xz"))}
    speeds, planted_recalls = [], []
    with tempfile.TemporaryDirectory() as name, dask.config.set(scheduler="synchronous"):
        folder = Path(name)
        X, pairs = planted(2000 if quick else 300_000)
        dump_svmlight_file(X, np.ones(X.shape[0]), str(folder / "rows.svm"), zero_based=True)
        source = dkfeat.LibsvmSource(folder / "rows.svm", n_features=COLUMNS, zero_based=True)
        for n_components in N_COMPONENTS[: 1 if quick else None]:
            data = featurized(source, folder / str(n_components), n_components)
            speeds.append(speed(data, 500 if quick else 10_000, 1 if quick else 5))
            planted_recalls += recalls(data, pairs)
        (folder / "night").mkdir()
        share = night(folder / "night", 2000 if quick else 2_000_000)["share"]
        (folder / "growth").mkdir()
        exponent = growth(folder / "growth", (500, 4000) if quick else (100_000, 800_000))["exponent"]
        reals = [real_set(name, paths[name], folder) for name in (["splice"] if quick else paths) if name in paths]
    print_table(planted_recalls)
    for record in speeds:
        million = record["rows_per_second"] / 1e6
        REPORT.mark(f"{record['codes']} codes, million rows a second", million, least=ROWS_PER_SECOND / 1e6)
    REPORT.mark("1 % new rows, share of a search of all", share, most=NIGHT)
    REPORT.mark("30 % of rows have copies, exponent of time in rows", exponent, most=EXPONENT)
    for n_components in {record["codes"]: None for record in planted_recalls}:
        below = [shortfall(each) for each in planted_recalls if each["codes"] == n_components]
        REPORT.mark(f"{n_components} codes, recall below the S-curve", max(below), most=RECALL_LOSS)
    if reals:
        missed = sum(record["copies"] - record["copies_found"] for record in reals)
        REPORT.mark("real sets, copies not found", missed, most=0)
        REPORT.mark("real sets, recall below the S-curve", max(map(shortfall, reals)), most=RECALL_LOSS)
    return REPORT.end(quick=quick)


def shortfall(record: dict) -> float:
    """Return how far a recall is below its expectation, 0 if pairs are too few to tell.

    Where not all candidates were compared, pairs that other rows connect count too.
    """
    if record["pairs"] < MANY:
        return 0.0
    return max(0.0, record["s_curve"] - record["recall" if record.get("compared", 1) == 1 else "connected"])


if __name__ == "__main__":
    sys.exit(main())
