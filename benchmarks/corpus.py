"""Near copies among texts: microseconds a document by stage, memory, recall and precision of dkfeat and of others.

    python benchmarks/corpus.py [--quick] [--documents N] [--tools dkfeat,rensa,datasketch] [--folder DIR]

The corpus is made of passages of 300 words from the sources and texts of the installed Python packages and of the
system's documents, in the order of their paths; more than 200,000 documents are drawn by a seed from the word bigrams
of these. One document in twenty is a near copy of another one, with words replaced at one of five rates. The
similarity is the resemblance of the sets of runs of 5 words.

Each tool runs in a process of its own, on one core, from the same Parquet file, after 100 documents that are not
counted. dkfeat writes the file without copies too; others end with the documents to keep. Recall is the share of
planted pairs of a resemblance of at least 0.8 of which the later document is dropped. Precision is the share of dropped
documents, of a sample, that have an earlier document of at least that resemblance, by an index of all runs. Tools that
are not installed are left out.
"""

import argparse
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from marks import Report
from paired import cpu_seconds

THRESHOLD, N_WORDS, RUN, RATES = 0.8, 300, 5, (0.0, 0.005, 0.01, 0.02, 0.04)
MOST_REAL, MOST_BIGRAMS, SAMPLE, ROW_GROUP = 200_000, 5_000_000, 500, 5_000
ENDINGS = (".py", ".pyi", ".md", ".rst", ".txt", ".h", "copyright", "README", "changelog")
WORD = re.compile(r"\w+")
ONE_THREAD = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
REPORT = Report("corpus")


def real_passages() -> Iterator[str]:
    """Passages of the installed files, each once."""
    seen: set[int] = set()
    for root in (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"], "/usr/share/doc"):
        for path in sorted(path for path in Path(root).rglob("*") if path.name.endswith(ENDINGS) and path.is_file()):
            text = path.read_text(encoding="utf-8", errors="ignore")
            starts = [match.start() for match in WORD.finditer(text)][::N_WORDS]
            for start, stop in pairwise([*starts, len(text)]):
                passage = text[start:stop]
                if hash(passage) not in seen:
                    seen.add(hash(passage))
                    yield passage


def drawn_passages(texts: list[str], n: int) -> Iterator[str]:
    """Passages whose words follow one another as in the texts."""
    rng = np.random.default_rng(1)
    words = [word for text in texts for word in text.split()][:MOST_BIGRAMS]
    vocabulary, codes = np.unique(words, return_inverse=True)
    order = np.argsort(codes[:-1], kind="stable")
    firsts = np.searchsorted(codes[:-1][order], np.arange(len(vocabulary) + 1))
    for start in range(0, n, ROW_GROUP):
        state = rng.integers(len(codes) - 1, size=min(ROW_GROUP, n - start))
        drawn = []
        for _ in range(N_WORDS):
            drawn.append(codes[state])
            low, high = firsts[drawn[-1]], firsts[drawn[-1] + 1]
            following = order[np.minimum(low + (rng.random(len(low)) * (high - low)).astype(np.int64), len(order) - 1)]
            state = np.where(high > low, following + 1, rng.integers(len(codes), size=len(low)))
            state = np.minimum(state, len(codes) - 1)
        yield from (" ".join(row) for row in vocabulary[np.array(drawn).T])


def write_corpus(folder: Path, n: int) -> int:
    """Write the documents, and the planted pairs (later document, earlier one, rate); return their number."""
    rng = np.random.default_rng(0)
    texts = [*islice(real_passages(), min(n, MOST_REAL))]
    texts += drawn_passages(texts, n - len(texts)) if n > MOST_REAL else ()
    n = len(texts)
    copies = np.sort(rng.choice(np.arange(n // 2, n), n // 20, replace=False))
    originals = rng.choice(n // 2, len(copies), replace=False)
    for position, (copy, original) in enumerate(zip(copies.tolist(), originals.tolist(), strict=True)):
        rate = RATES[position % len(RATES)]
        texts[copy] = WORD.sub(lambda match, rate=rate: "zz" if rng.random() < rate else match[0], texts[original])
    table = pa.table({"id": np.arange(n), "body": texts})
    pq.write_table(table, folder / "docs.parquet", row_group_size=ROW_GROUP)
    np.save(folder / "planted.npy", np.column_stack([copies, originals]))
    return n


def runs_of(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {" ".join(words[at : at + RUN]) for at in range(max(1, len(words) - RUN + 1))}


def bodies(folder: Path) -> list[str]:
    return pq.read_table(folder / "docs.parquet", columns=["body"])["body"].to_pylist()


def by_dkfeat(folder: Path, timed: Callable) -> np.ndarray:
    import dkfeat
    from dkfeat.neighbors import drop_duplicates, duplicates

    source = dkfeat.ParquetSource(str(folder / "docs.parquet"), label=None)
    map, text = dkfeat.MinHashFeatures(256, random_state=0), dkfeat.Text("body", ngrams=f"word {RUN}")
    features, found, clean = (folder / f"dkfeat-{name}" for name in ("features", "found", "clean"))
    timed("featurize", lambda: dkfeat.featurize(source, features, map, encoder=text, progress=False))
    timed("search", lambda: duplicates(features, THRESHOLD, target=found, progress=False))
    timed("clean Parquet", lambda: drop_duplicates(source, found, clean, progress=False))
    return dkfeat.neighbors.Duplicates.open(found).kept


def by_rensa(folder: Path, timed: Callable) -> np.ndarray:
    from rensa import RMinHashDeduplicator

    texts = timed("read", lambda: bodies(folder))
    sets = timed("n-grams", lambda: [[*runs_of(text)] for text in texts])
    tool = RMinHashDeduplicator(threshold=THRESHOLD, num_perm=128, use_lsh=True)
    pairs = zip(map(str, range(len(sets))), sets, strict=True)
    return np.array(timed("sketch and search", lambda: tool.add_pairs(pairs)))


def by_datasketch(folder: Path, timed: Callable) -> np.ndarray:
    from datasketch import MinHash, MinHashLSH

    texts = timed("read", lambda: bodies(folder))
    sets = timed("n-grams", lambda: [[run.encode() for run in runs_of(text)] for text in texts])
    sketches = timed("sketch", lambda: MinHash.bulk(sets, num_perm=128))
    index, keep = MinHashLSH(threshold=THRESHOLD, num_perm=128), np.ones(len(sets), np.bool_)

    def search() -> None:
        for row, sketch in enumerate(sketches):
            keep[row] = not index.query(sketch)
            index.insert(row, sketch)

    timed("search", search)
    return keep


TOOLS = {"dkfeat": by_dkfeat, "rensa": by_rensa, "datasketch": by_datasketch}


def run_tool(name: str, folder: Path) -> None:
    """Run one tool in this process; write which documents are kept, and print what it took."""
    seconds: dict[str, float] = {}

    def timed(stage: str, call: Callable) -> object:
        results = []
        seconds[stage] = cpu_seconds(lambda: results.append(call()))
        return results[0]

    import dask

    with dask.config.set(scheduler="synchronous"), tempfile.TemporaryDirectory() as warm:
        pq.write_table(pq.read_table(folder / "docs.parquet").slice(0, 100), Path(warm) / "docs.parquet")
        TOOLS[name](Path(warm), timed)  # imports, and loads compiled code
        np.save(folder / f"{name}.npy", TOOLS[name](folder, timed))
    print(json.dumps({"seconds": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


class Truth:
    """Resemblance of documents with planted pairs, and with all earlier documents by an index of runs."""

    def __init__(self, folder: Path) -> None:
        self.texts, self.planted = bodies(folder), np.load(folder / "planted.npy")
        parts = [np.array([hash(run) for run in runs_of(text)], np.int64) for text in self.texts]
        rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        hashes = np.concatenate(parts)
        order = np.argsort(hashes, kind="stable")
        self.sizes, self.hashes, self.rows = np.array([len(part) for part in parts]), hashes[order], rows[order]
        self.parts = parts
        wanted = [len({*parts[a]} & {*parts[b]}) / len({*parts[a]} | {*parts[b]}) for a, b in self.planted.tolist()]
        self.wanted = self.planted[np.array(wanted) >= THRESHOLD, 0]

    def has_earlier(self, row: int) -> bool:
        """Whether an earlier document has a resemblance of at least the threshold."""
        bounds = (np.searchsorted(self.hashes, self.parts[row], side) for side in ("left", "right"))
        lists = [self.rows[low:high] for low, high in zip(*bounds, strict=True)]
        others, shared = np.unique(np.concatenate(lists), return_counts=True)
        shared, others = shared[others < row], others[others < row]
        return bool(np.any(shared >= THRESHOLD * (self.sizes[others] + self.sizes[row] - shared)))

    def judge(self, keep: np.ndarray) -> dict[str, float]:
        dropped = np.flatnonzero(~keep)
        sample = np.random.default_rng(0).permutation(dropped)[:SAMPLE]
        right = np.mean([self.has_earlier(row) for row in sample.tolist()]) if len(sample) else 1.0
        recall = np.mean(~keep[self.wanted])
        return {"dropped": len(dropped), "recall": round(float(recall), 4), "precision": round(float(right), 4)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few documents: a check that it runs, not a measurement")
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--folder", type=Path, help="folder for the corpus and results; left out: a temporary one")
    parser.add_argument("--run", choices=TOOLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_tool(options.run, options.folder)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        n = write_corpus(folder, 1_000 if options.quick else options.documents)
        size = (folder / "docs.parquet").stat().st_size
        REPORT.emit("corpus", documents=n, parquet_mb=round(size / 1e6, 1))
        truth, total = Truth(folder), {}
        for name in options.tools.split(","):
            if importlib.util.find_spec(name) is None:
                continue
            command = [sys.executable, __file__, "--run", name, "--folder", str(folder)]
            environment = os.environ | ONE_THREAD
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            record = json.loads(done.stdout.splitlines()[-1])
            stages = {stage: round(seconds / n * 1e6, 1) for stage, seconds in record["seconds"].items()}
            total[name] = sum(record["seconds"].values()) - record["seconds"].get("clean Parquet", 0)
            us = round(total[name] / n * 1e6, 1)
            REPORT.emit(
                name, us_a_document=us, stages=stages, mb=record["mb"], **truth.judge(np.load(folder / f"{name}.npy"))
            )
    for name in total.keys() - {"dkfeat"} if "dkfeat" in total else ():
        REPORT.mark(f"{name}'s time by dkfeat's", total[name] / total["dkfeat"], least=1)
    return REPORT.end(quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
