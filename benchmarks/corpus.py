"""Near copies among texts: microseconds a document by stage, memory, recall and precision of dkfeat and of others.

    python benchmarks/corpus.py [--quick] [--documents N,...] [--others-documents N] [--tools NAME,...] [--folder DIR]

The corpus is made of passages of 300 words from the sources and texts of the installed Python packages and of the
system's documents, in the order of their paths, of which at most 200,000 are taken; the rest is drawn by a seed from
the word bigrams of these. One document in twenty is a near copy of another one, with words replaced at one of five
rates. The similarity is the resemblance of the sets of runs of 5 words.

Each tool runs in a process of its own, on one core, from the same Parquet file, after 100 documents that are not
counted; the time is that of the processor. dkfeat writes the file without copies too; others end with the documents to
keep, text-dedup with a copy of these. The commands of dkfeat do what its calls do, start-up included. Recall is the
share of planted pairs of a resemblance of at least 0.8 of which at most one document is kept. Precision is the share
of dropped documents, of a sample, that have another document of at least that resemblance, by an index of all runs.
Tools that are not installed are left out.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from marks import Report

THRESHOLD, N_WORDS, RUN, RATES = 0.8, 300, 5, (0.0, 0.005, 0.01, 0.02, 0.04)
MOST_REAL, MOST_BIGRAMS, SAMPLE, ROW_GROUP = 200_000, 5_000_000, 500, 5_000
ENDINGS = (".py", ".pyi", ".md", ".rst", ".txt", ".h", "copyright", "README", "changelog")
WORD, TOKEN = re.compile(r"\w+"), re.compile(r"\w{1,40}\W{0,40}")
ONE_THREAD = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
FIND_US, CLEAN_US, MEMORY_MB, RECALL, PRECISION, EXPONENT, COMMANDS_RATIO = 16, 28, 600, 0.96, 0.95, 1.1, 2.5
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


def drawn_passages(words: list[str]) -> Iterator[str]:
    """Passages without end, whose words follow one another as these do."""
    rng = np.random.default_rng(1)
    encoded = pa.array(words).dictionary_encode()
    codes, vocabulary = encoded.indices.to_numpy(), np.array(encoded.dictionary.to_pylist(), object)
    order = np.argsort(codes[:-1], kind="stable")
    firsts = np.searchsorted(codes[:-1][order], np.arange(len(vocabulary) + 1))
    while True:
        state = rng.integers(len(codes) - 1, size=ROW_GROUP)
        drawn = []
        for _ in range(N_WORDS):
            drawn.append(codes[state])
            low, high = firsts[drawn[-1]], firsts[drawn[-1] + 1]
            following = order[np.minimum(low + (rng.random(len(low)) * (high - low)).astype(np.int64), len(order) - 1)]
            state = np.where(high > low, following + 1, rng.integers(len(codes), size=len(low)))
        yield from ("".join(row) for row in vocabulary[np.array(drawn).T])


def passages() -> Iterator[str]:
    """Real passages, then drawn ones."""
    words: list[str] = []
    for passage in islice(real_passages(), MOST_REAL):
        if len(words) < MOST_BIGRAMS:
            words += TOKEN.findall(passage)
        yield passage
    yield from drawn_passages(words)


def write_corpus(folder: Path, n: int) -> None:
    """Write the documents, and the planted pairs of a resemblance of at least the threshold."""
    rng = np.random.default_rng(0)
    copies = np.sort(rng.choice(np.arange(n // 2, n), n // 20, replace=False)).tolist()
    originals = rng.choice(n // 2, len(copies), replace=False).tolist()
    pairs, copied, planted = dict(zip(copies, originals, strict=True)), dict.fromkeys(originals, ""), []
    schema, rates = pa.schema({"id": pa.int64(), "body": pa.string()}), iter(RATES * n)
    folder.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(folder / "docs.parquet", schema) as writer:
        texts = passages()
        for start in range(0, n, ROW_GROUP):
            rows = [*islice(texts, min(ROW_GROUP, n - start))]
            for row in range(start, start + len(rows)):
                if row in copied:
                    copied[row] = rows[row - start]
                if row in pairs:
                    rate, text = next(rates), copied[pairs[row]]
                    copy = WORD.sub(lambda match, rate=rate: "zz" if rng.random() < rate else match[0], text)
                    own, other = runs_of(copy), runs_of(text)
                    rows[row - start] = copy
                    if len(own & other) >= THRESHOLD * len(own | other):
                        planted.append((row, pairs[row]))
            writer.write_table(pa.table({"id": range(start, start + len(rows)), "body": rows}, schema))
    np.save(folder / "planted.npy", planted)


def runs_of(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {" ".join(words[at : at + RUN]) for at in range(max(1, len(words) - RUN + 1))}


def bodies(folder: Path) -> list[str]:
    return pq.read_table(folder / "docs.parquet", columns=["body"])["body"].to_pylist()


def by_dkfeat(folder: Path, timed: Callable) -> np.ndarray:
    import dask

    import dkfeat
    from dkfeat.neighbors import drop_duplicates, duplicates

    source = dkfeat.ParquetSource(str(folder / "docs.parquet"), label=None, keep=("id",))
    map, text = dkfeat.MinHashFeatures(256, random_state=0), dkfeat.Text("body", ngrams=f"word {RUN}")
    features, found, clean = (folder / f"dkfeat-{name}" for name in ("features", "found", "clean"))
    with dask.config.set(scheduler="synchronous"):
        timed("featurize", lambda: dkfeat.featurize(source, features, map, encoder=text, progress=False))
        timed("search", lambda: duplicates(features, THRESHOLD, target=found, progress=False))
        timed("clean Parquet", lambda: drop_duplicates(source, found, clean, progress=False))
    return dkfeat.neighbors.Duplicates.open(found).kept


def by_commands(folder: Path, timed: Callable) -> np.ndarray:
    """Run the commands of dkfeat, each a process."""
    from dkfeat.neighbors import Duplicates

    docs, (features, found, clean) = folder / "docs.parquet", (folder / f"command-{at}" for at in range(3))
    options = f"--no-label --map minhash --n-components 256 --keep id --out {features}".split()
    commands = {
        "featurize": ["featurize", docs, "--text", f"body=word {RUN}", *options],
        "duplicates": ["duplicates", features, "--threshold", THRESHOLD, "--out", found],
        "drop-duplicates": ["drop-duplicates", docs, found, "--out", clean],
    }
    for stage, words in commands.items():
        command = [sys.executable, "-m", "dkfeat", *map(str, words), "--scheduler", "synchronous", "--quiet"]
        timed(stage, lambda command=command: subprocess.run(command, check=True))
    return Duplicates.open(found).kept


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


def by_datatrove(folder: Path, timed: Callable) -> np.ndarray:
    """Run the first three of its four steps, as it gives the documents to remove as numbers."""
    from datatrove.pipeline.dedup import minhash
    from datatrove.pipeline.readers import ParquetReader

    config = minhash.MinhashConfig(n_grams=RUN)
    signatures, buckets, removed = (str(folder / f"datatrove-{at}") for at in range(3))
    reader = ParquetReader(str(folder), glob_pattern="docs.parquet", text_key="body")
    sign = minhash.MinhashDedupSignature(signatures, config)
    join = minhash.MinhashDedupBuckets(signatures, buckets, config=config)
    timed("n-grams and sketch", lambda: sign.run(reader.run()))
    timed("search", lambda: [join.run(rank=rank, world_size=config.num_buckets) for rank in range(config.num_buckets)])
    timed("groups", lambda: minhash.MinhashDedupCluster(buckets, removed, config).run())
    keep = np.ones(pq.read_metadata(folder / "docs.parquet").num_rows, np.bool_)
    for path in Path(removed).glob("*.remove"):
        keep[np.fromfile(path, np.uint32)] = False
    return keep


def by_text_dedup(folder: Path, timed: Callable) -> np.ndarray:
    """Run its command in this process, from the Parquet file to the copy of what is kept."""
    import datasets
    from text_dedup.minhash import main

    clean, cache = folder / "text-dedup-clean", folder / "text-dedup-cache"
    words = (
        f"--path parquet --data_files {folder}/docs.parquet --split train --column body --num_proc 1 --output {clean}"
    )
    settings = f"--cache_dir {cache} --threshold {THRESHOLD} --ngram {RUN} --num_perm 128 --min_length 1"
    timed("all", lambda: main([*words.split(), *settings.split()], standalone_mode=False))
    keep = np.zeros(pq.read_metadata(folder / "docs.parquet").num_rows, np.bool_)
    keep[datasets.load_from_disk(clean)["id"]] = True
    return keep


TOOLS = {
    "dkfeat": by_dkfeat,
    "commands": by_commands,
    "rensa": by_rensa,
    "datasketch": by_datasketch,
    "datatrove": by_datatrove,
    "text_dedup": by_text_dedup,
}
OURS = ("dkfeat", "commands")


def processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run_tool(name: str, folder: Path) -> None:
    """Run one tool in this process; write which documents are kept, and print what it took."""
    seconds: dict[str, float] = {}

    def timed(stage: str, call: Callable) -> object:
        start = processor_seconds()
        result = call()
        seconds[stage] = processor_seconds() - start
        return result

    with tempfile.TemporaryDirectory(dir=folder) as scratch, contextlib.redirect_stdout(io.StringIO()):
        warm, own = Path(scratch) / "warm", Path(scratch) / "own"
        warm.mkdir()
        own.mkdir()
        file = pq.ParquetFile(folder / "docs.parquet")
        pq.write_table(pa.Table.from_batches(islice(file.iter_batches(100), 1)), warm / "docs.parquet")
        os.link(folder / "docs.parquet", own / "docs.parquet")
        TOOLS[name](warm, timed)  # imports, and loads compiled code
        np.save(folder / f"{name}.npy", TOOLS[name](own, timed))
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    kib = max(kib, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    print(json.dumps({"seconds": seconds, "mb": kib >> 10}))


def documents(folder: Path) -> Iterator[tuple[int, str]]:
    """Read the texts with their numbers."""
    for batch in pq.ParquetFile(folder / "docs.parquet").iter_batches(ROW_GROUP):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def score(folder: Path, keep: np.ndarray) -> dict[str, float]:
    """Compare with the planted pairs, and a sample of the dropped documents with all documents."""
    dropped, planted = np.flatnonzero(~keep), np.load(folder / "planted.npy").reshape(-1, 2).astype(int)
    sample = {*np.random.default_rng(0).permutation(dropped)[:SAMPLE].tolist()}
    runs = {row: runs_of(text) for row, text in documents(folder) if row in sample}
    having, right = defaultdict(list), set()
    for row, run in chain.from_iterable(((row, run) for run in runs[row]) for row in runs):
        having[run].append(row)
    for number, text in documents(folder):
        own = runs_of(text)
        shared = Counter(chain.from_iterable(having.get(run, ()) for run in own))
        right.update(
            row for row, n in shared.items() if row != number and n >= THRESHOLD * (len(own) + len(runs[row]) - n)
        )
    recall, precision = 1 - np.all(keep[planted], axis=1).mean(), len(right) / max(1, len(sample))
    return {"dropped": len(dropped), "recall": round(float(recall), 4), "precision": round(precision, 4)}


def measure(name: str, folder: Path, n: int) -> dict[str, float]:
    """Run a tool in a process, print its record, and return the seconds of its stages."""
    command = [sys.executable, __file__, "--run", name, "--folder", str(folder)]
    done = subprocess.run(command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True, check=True)
    record = json.loads(done.stdout.splitlines()[-1])
    seconds, mb = record["seconds"], record["mb"]
    stages = {stage: round(each / n * 1e6, 1) for stage, each in seconds.items()}
    us = round(sum(seconds.values()) / n * 1e6, 1)
    found = score(folder, np.load(folder / f"{name}.npy"))
    REPORT.emit(name, documents=n, us_a_document=us, stages=stages, mb=mb, **found)
    if name == "dkfeat":
        clean = stages["clean Parquet"]
        for bound, figure, most in (("find", us - clean, FIND_US), ("with clean Parquet", us, CLEAN_US)):
            REPORT.mark(f"{n:,} documents, {bound}, µs a document", figure, most=most)
        REPORT.mark(f"{n:,} documents, MB", mb, most=MEMORY_MB)
        REPORT.mark(f"{n:,} documents, recall", found["recall"], least=RECALL)
        REPORT.mark(f"{n:,} documents, precision", found["precision"], least=PRECISION)
    return seconds


def compare(seconds: dict[tuple[str, int], dict[str, float]]) -> None:
    """Note the ratios of the tools, and how time grows with the documents."""
    totals = {key: sum(stages.values()) for key, stages in seconds.items()}
    finds = {key: total - seconds[key].get("clean Parquet", 0) for key, total in totals.items()}
    sizes = sorted(n for name, n in seconds if name == "dkfeat")
    for name, n in seconds:
        if name == "commands" and n in sizes:
            ratio = totals[name, n] / totals["dkfeat", n]
            REPORT.mark(f"{n:,} documents, three commands by the calls", ratio, most=COMMANDS_RATIO)
        elif name != "dkfeat" and n in sizes:
            REPORT.mark(f"{n:,} documents, {name}'s time by dkfeat's", finds[name, n] / finds["dkfeat", n], least=1)
    for n in sizes[:-1]:
        power = np.log(finds["dkfeat", sizes[-1]] / finds["dkfeat", n]) / np.log(sizes[-1] / n)
        REPORT.mark(f"exponent from {n:,} to {sizes[-1]:,} documents", power, most=EXPONENT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few documents: a check that it runs, not a measurement")
    parser.add_argument("--documents", default="20000,200000", help="sizes of corpora (default: %(default)s)")
    parser.add_argument("--others-documents", type=int, default=20_000, help="most documents of the other tools")
    parser.add_argument("--tools", default=",".join(TOOLS), help="of these, those that are installed")
    parser.add_argument("--folder", type=Path, help="folder that keeps the corpora; left out: a temporary one")
    parser.add_argument("--run", choices=TOOLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_tool(options.run, options.folder)
        return 0
    seconds, tools = {}, [name for name in options.tools.split(",") if name in OURS or importlib.util.find_spec(name)]
    with tempfile.TemporaryDirectory() as temporary:
        for n in [1_000] if options.quick else map(int, options.documents.split(",")):
            folder = (options.folder or Path(temporary)) / str(n)
            if not (folder / "planted.npy").exists():
                write_corpus(folder, n)
            REPORT.emit("corpus", documents=n, parquet_mb=round((folder / "docs.parquet").stat().st_size / 1e6, 1))
            for name in tools:
                if name in OURS or n <= options.others_documents:
                    seconds[name, n] = measure(name, folder, n)
    compare(seconds)
    return REPORT.end(quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
