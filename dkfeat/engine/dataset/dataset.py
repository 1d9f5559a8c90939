"""Committed data set of shards, read in batches, as arrays in memory or as Dask arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from dkfeat.blocks import RESERVED, PackedCodes, RowBlock
from dkfeat.engine.dataset.rows import cut_batches, indicator, prefetch_calls, shuffle_batches
from dkfeat.engine.dataset.verify import verify_shards
from dkfeat.engine.open import as_path
from dkfeat.engine.tasks.landmarks import load_encoder, load_map
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.messages import counted, printable
from dkfeat.sources.pieces import join_blocks
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.shards import reader
from dkfeat.store.shards.columns import LAYOUTS
from dkfeat.store.storage import is_read_only, open_storage
from dkfeat.store.storage.base import DATA, SPEC
from dkfeat.validation import check_choice, check_integer

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client
    from numpy.typing import NDArray

    from dkfeat.config import ExecutionConfig
    from dkfeat.encoders._base import Encoder
    from dkfeat.engine.progress import ProgressState
    from dkfeat.maps import FeatureMap
    from dkfeat.store.manifest.records import ShardEntry


BUFFER_BYTES = 64 << 20
"""Default size of the shuffle buffer, in bytes of encoded rows."""


def open_shards(
    target: str | PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    verify: Literal["sha256", "size"] = "sha256",
) -> ShardDataset:
    """Open a folder of shards.

    The data set is that of the newest committed manifest; later commits do not change it. Nothing is written.

    Parameters
    ----------
    target : str or path
        Folder that `dkfeat.featurize` wrote.
    storage_options : mapping or None
        Settings of the storage.
    verify : {"sha256", "size"}, default="sha256"
        "sha256" compares each shard's SHA-256 when it is first read. Sizes and page checksums are always compared.

    Raises
    ------
    dkfeat.errors.ShardError
        If there is no data set, nothing is committed, or its metadata are inconsistent.
    dkfeat.errors.SpecConflictError
        If a newer dkfeat wrote it.
    """
    check_choice(verify, "verify", ("sha256", "size"))
    return ShardDataset(reader.open_reader(open_storage(as_path(target, "target"), storage_options)), verify)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that was set aside, for display: position, reason and text."""

    source: str
    """Name of the source file."""
    line: int
    """1-based line in the decompressed file; for Parquet the 1-based row in the file."""
    column: int
    """1-based byte column of the invalid token; 0 for Parquet, whose message names the column."""
    offset: int
    """0-based byte at which the line begins in the decompressed file; for Parquet the 0-based row in the file."""
    reason: str
    """Reason as in the counts of the manifest, such as "bad value"."""
    message: str
    """Message with the expected and the actual text."""
    text: str
    """The line, or the values read, truncated to 160 characters; control and non-ASCII characters are escaped."""

    @property
    def place(self) -> str:
        """``file:line:column``, as in error messages; for Parquet only the file; the message names row and column."""
        file = printable(self.source)
        return f"{file}:{self.line}:{self.column}" if self.column else file

    def to_mapping(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return asdict(self)


_COLUMNS = ("query_id", "weight", "kept", "number")
"""Columns that `ShardDataset.batches` returns on request."""


@dataclass(frozen=True, eq=False, repr=False)
class ShardDataset:
    r"""Rows of a committed data set, in the source's order unless shuffled; made by `open_shards`.

    Labels of a multi-label source are an indicator matrix: a csr_matrix of uint8 with a column for each of `classes`.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> data = dkfeat.open_shards(folder / "features")
    >>> data.shape, data.classes.tolist()
    ((2, 4096), [-1, 1])
    >>> for X, y in data.batches(10, shuffle=False):
    ...     print(X.shape, y.tolist())
    (2, 4096) [1, -1]
    """

    shards: reader.ShardReader
    """Reader of single shards."""
    verifies: Literal["sha256", "size"]
    """Check that is made when a shard is first read."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what is read again where it is needed."""
        return type(self), (self.shards, self.verifies)

    def __repr__(self) -> str:
        held = f"{counted(self.n_rows, 'row')}, {counted(self.n_shards, 'shard')}"
        return f"ShardDataset({self.shards.storage.url!r}, {held})"

    @property
    def manifest(self) -> Manifest:
        """The committed list of shards."""
        return self.shards.manifest

    @property
    def spec(self) -> Mapping[str, Any]:
        """All settings that determine the shards' bytes: keys map, input, split, output."""
        return self.shards.spec

    @property
    def layout(self) -> str:
        """Layout of the features, "codes", "sparse" or "dense", or the kind of a table, such as "predictions"."""
        return str(self.spec["output"]["layout"])

    @property
    def has_features(self) -> bool:
        """False for a table that was computed from features, such as the output of `dkfeat.predict`."""
        return self.layout in LAYOUTS

    def check_features(self) -> None:
        """Raise `ConfigError` for a table that was computed from features."""
        if not self.has_features:
            url = self.shards.storage.url
            raise ConfigError(f"{url} holds {self.layout}, not features; any Parquet reader reads {url}/data")

    @cached_property
    def map(self) -> FeatureMap:
        """The fitted map that made the features; landmarks are read from their file."""
        return load_map(self.spec, self.shards.storage)

    @cached_property
    def encoder(self) -> Encoder | None:
        """The fitted encoder through which the map took rows; None if it took numbers as they are."""
        return load_encoder(self.spec, self.shards.storage)

    def quarantine(self) -> Iterator[QuarantinedRow]:
        """Rows of the source that were set aside as bad, in its order.

        Yields
        ------
        row : QuarantinedRow
            With ``source``, ``line``, ``column``, ``offset``, ``reason``, ``message`` and ``text``, and ``place``,
            which is the text of the first three.
        """
        names = [source.name for source in self.manifest.sources]
        positions = {name: position for position, name in enumerate(names)}
        seen: Counter[str] = Counter()  # lines of each file in earlier splits, since line numbers start at the split
        before = 0
        for entry in self.manifest.shards:
            if entry.piece == 0:
                before = seen[entry.source]
            seen[entry.source] += entry.lines or 0
            for bad in self.shards.bad_rows(entry) if entry.bad_rows else ():
                same = {name: getattr(bad, name) for name in ("column", "offset", "reason", "message", "text")}
                name = names[positions[entry.source] + bad.file]
                yield QuarantinedRow(source=name, line=before + bad.line, **same)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.manifest.rows

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.manifest.shards)

    @property
    def paths(self) -> list[str]:
        """Paths or URLs of the shards' files, in the order of their rows, for other readers of Parquet.

        The folder ``data`` may have further files while a run writes to it, and after one that was interrupted.
        """
        return [f"{self.shards.storage.url}/{DATA}/{name}" for name in self.manifest.shards.names]

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """Number of the first row of each shard among all rows, and at the end the number of rows."""
        return np.concatenate([[0], np.cumsum(self.manifest.records.shards["rows"])])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of the decoded features."""
        return self.n_rows, int(self.spec["output"]["n_features_out"])

    @cached_property
    def classes(self) -> NDArray[Any] | None:
        """Sorted label set, int64 or float64; None beyond 10,000 labels."""
        labels = self.manifest.labels
        return None if labels is None else np.array(labels, dtype=self.spec["input"]["label_dtype"])

    def batches(
        self,
        rows: int,
        shuffle: bool = True,
        random_state: int | None = 0,
        *,
        buffer_rows: int | None = None,
        decode: bool = True,
        columns: Sequence[str] = (),
        shards: Sequence[int] | None = None,
        loaders: int = 1,
    ) -> Iterator[tuple[Any, ...]]:
        """Iterate once over all rows, in bounded memory.

        With `shuffle`, shards are read in a random order and rows are drawn at random from a buffer. The order is
        nearly uniform if the buffer holds several shards, and exactly uniform if it holds all rows. Background threads
        read the next `loaders` shards meanwhile. Memory use is up to 3.5 times the buffer, and `loaders` + 2 shards.

        Parameters
        ----------
        rows : int
            Rows in a batch, at least 1; the last one may have fewer.
        shuffle : bool, default=True
            False keeps the source's order.
        random_state : int or None, default=0
            Seed of the order, at least 0. Equal seeds give equal batches, so pass another seed in each epoch, such as
            its number. None draws a seed.
        buffer_rows : int or None
            Number of rows in the shuffle buffer; None: 64 MiB of encoded rows.
        decode : bool, default=True
            False returns encoded rows instead of features.
        columns : sequence of str, default=()
            What to return besides, of "query_id", "weight", "kept" and "number"; it is returned in this order.
        shards : sequence of int or None
            Ascending positions in ``manifest.shards`` of the shards to read. None: all of them.
        loaders : int, default=1
            Threads that read shards ahead, each one shard. Their number does not change the batches.

        Yields
        ------
        X : csr_matrix or ndarray of shape (n_batch, n_features_out), or PackedCodes
            Features; csr_matrix of float32 with int32 indices if they fit.
        y : ndarray of shape (n_batch,), or csr_matrix
            Labels.
        qid : ndarray of shape (n_batch,), int64
            Only with "query_id" in `columns`.
        weight : ndarray of shape (n_batch,), float64
            Only with "weight" in `columns`.
        kept : dict of str to pyarrow.Array of length n_batch
            Only with "kept" in `columns`: columns by their names in the shards; values may be null.
        number : ndarray of shape (n_batch,), int64
            Only with "number" in `columns`: position among all rows in the source's order, from 0. It does not depend
            on the split of the source into shards.

        Raises
        ------
        dkfeat.errors.ConfigError
            If an argument is out of range, or query ids or weights are requested that the shards do not have.
        dkfeat.errors.ShardError
            If a shard is not as committed.
        """
        row_bytes = int(self.spec["output"]["row_bytes"])
        rows = check_integer(rows, "rows", low=1)
        held = max(1, BUFFER_BYTES // row_bytes) if buffer_rows is None else buffer_rows
        held = check_integer(held, "buffer_rows", low=1)
        if random_state is not None:
            random_state = check_integer(random_state, "random_state", low=0)
        loaders = check_integer(loaders, "loaders", low=1)
        for name in columns:
            check_choice(name, "columns", _COLUMNS)
        query_id, weight, kept, number = (name in columns for name in _COLUMNS)
        parts = (*self._parts(query_id, weight, kept), *(("number",) if number else ()))
        rng = np.random.default_rng(random_state) if shuffle else None
        entries = self.manifest.shards
        firsts = np.cumsum([0, *(entry.rows for entry in entries)]).tolist()
        order = [i for i in (range(len(entries)) if shards is None else shards) if entries[i].rows]
        if rng is not None:
            order = [order[i] for i in rng.permutation(len(order))]
        calls = (partial(self._numbered_rows, entries[i], firsts[i], parts) for i in order)
        read = prefetch_calls(calls, threads=loaders)
        if rng is None:
            blocks = cut_batches(read, rows)
        else:
            blocks = shuffle_batches(read, [entries[i].rows for i in order], rows, kept=held, rng=rng)
        return (self._as_batch(block, parts, decode=decode) for block in blocks)

    def to_scipy(self, *, query_id: bool = False, weight: bool = False, kept: bool = False) -> tuple[Any, ...]:
        """Read all features and labels into memory, in the source's order, in the form of a batch of `batches`."""
        return self._read_shards(self.manifest.shards, self._parts(query_id, weight, kept))

    def codes(self) -> PackedCodes:
        """Read all packed codes into memory, in the source's order.

        Raises
        ------
        dkfeat.errors.ConfigError
            If the layout is not "codes".
        """
        if self.layout != "codes":
            raise ConfigError(f"these shards hold the layout {self.layout!r}, not codes; use to_scipy")
        codes: PackedCodes = join_blocks([self._rows(entry, ()) for entry in self.manifest.shards]).X
        return codes

    def labels(self) -> Any:
        """Read all labels into memory, in the source's order; a list of arrays for a multi-label source."""
        found: list[Any] = []
        for entry in self.manifest.shards:
            data = self.shards.read(entry, self.verifies, only=("label",))
            if data.y is not None and data.label_offsets is not None:
                found.extend(np.split(data.y, data.label_offsets[1:-1]) if entry.rows else [])
            else:
                found.append(data.y)
        if self.spec["input"]["multilabel"]:
            return found
        return np.concatenate(found) if found else np.empty(0, self.spec["input"]["label_dtype"])

    def to_dask(self, *, weight: bool = False, chunk_rows: int | None = None) -> tuple[da.Array, ...]:
        """Return features and labels as lazy Dask arrays of known chunks.

        Parameters
        ----------
        weight : bool, default=False
            Also return each row's weight.
        chunk_rows : int or None
            None: a chunk for each shard that has rows. Otherwise consecutive shards form a chunk of at most this many
            rows; a larger shard is a chunk of its own. Set it if there are many small shards: Dask spends about a
            millisecond on each task, and memory on the whole graph.

        Returns
        -------
        X : dask.array.Array of shape (n_rows, n_features_out)
            Chunks are csr_matrix of float32 with int32 indices if they fit, or numpy arrays for the layout "dense".
        y : dask.array.Array of shape (n_rows,), or (n_rows, n_classes) for a multi-label source
        weight : dask.array.Array of shape (n_rows,), float64
            Only if `weight`.

        Raises
        ------
        dkfeat.errors.ConfigError
            If `chunk_rows` is below 1, or weights are requested that the shards do not have.
        """
        from dkfeat.engine.dataset.arrays import block_arrays  # late import: dask.array takes long to import

        parts = self._parts(False, weight, False)
        most = 1 if chunk_rows is None else check_integer(chunk_rows, "chunk_rows", low=1)
        spec, manifest = self.spec, self.manifest
        groups = _grouped([entry for entry in manifest.shards if entry.rows] or manifest.shards[:1], most)
        light = ShardDataset(reader.ShardReader(self.shards.storage, spec, manifest.without_records()), self.verifies)
        metas: dict[str, Any] = {"dkfeat-X": sparse.csr_matrix((0, self.shape[1]), dtype=np.float32)}
        if self.layout == "dense":
            metas["dkfeat-X"] = np.empty((0, self.shape[1]), np.float32)
        metas["dkfeat-y"] = np.empty(0, spec["input"]["label_dtype"])
        if spec["input"]["multilabel"]:
            n_classes = 0 if self.classes is None else len(self.classes)
            metas["dkfeat-y"] = sparse.csr_matrix((0, n_classes), dtype=np.uint8)
        if weight:
            metas["dkfeat-weight"] = np.empty(0)
        return block_arrays(
            partial(ShardDataset._read_shards, parts=parts),
            light,
            groups,
            [sum(entry.rows for entry in group) for group in groups],
            metas,
            name="dkfeat",
            token="-".join([manifest.sha256[:16], str(most), *parts]),
        )

    def _parts(self, query_id: bool, weight: bool, kept: bool) -> tuple[str, ...]:
        """Return the requested columns besides features and labels; raise `ConfigError` if the data set lacks one."""
        self.check_features()
        if query_id and not self.spec["input"]["query_id"]:
            raise ConfigError("query ids are requested, but the source was read without them")
        if weight and "weight" not in self.manifest.schema:
            raise ConfigError("weights are requested, but the source was read without them")
        return tuple(name for name, wanted in (("qid", query_id), ("weight", weight), ("kept", kept)) if wanted)

    def _rows(self, entry: ShardEntry, parts: Sequence[str]) -> RowBlock:
        """Read the rows of a shard."""
        kept = [name for name in self.manifest.schema if name not in RESERVED] if "kept" in parts else []
        data = self.shards.read(entry, self.verifies, only=("encoded", "label", *parts, *kept))
        if data.label_offsets is None or data.y is None:
            return data
        return replace(data, y=indicator(data.y, data.label_offsets, self.classes), label_offsets=None)

    def _numbered_rows(self, entry: ShardEntry, first: int, parts: Sequence[str]) -> RowBlock:
        return replace(self._rows(entry, parts), number=np.arange(first, first + entry.rows))

    def _as_batch(self, rows: RowBlock, parts: Sequence[str], *, decode: bool = True) -> tuple[Any, ...]:
        features = self.map.decode(rows.X) if decode and isinstance(rows.X, PackedCodes) else rows.X
        return (features, rows.y, *(getattr(rows, part) for part in parts))

    def _read_shards(self, entries: Sequence[ShardEntry], parts: Sequence[str]) -> tuple[Any, ...]:
        """Read and join several shards: decoded features, labels and the other parts."""
        return self._as_batch(join_blocks([self._rows(entry, parts) for entry in entries]), parts)

    def verify(
        self,
        *,
        client: Client | ExecutionConfig | None = None,
        progress: bool | Callable[[ProgressState], object] = False,
    ) -> reader.Report:
        """Read every shard of the newest manifest, and a Delta log; report problems and files not listed.

        Parameters
        ----------
        client : distributed.Client or None, default=None
            See `dkfeat.featurize`.
        progress : bool or callable, default=False
            See `dkfeat.featurize`.

        Returns
        -------
        report : Report
            ``problems`` is empty if everything is as committed.

        Raises
        ------
        dkfeat.errors.ShardError
            If the spec or the manifest cannot be read.
        dkfeat.errors.ClusterError
            If workers or the scheduler were lost.
        """
        return verify_shards(self.shards.storage, client, progress)


def dataset_reader(source: Any, storage_options: Mapping[str, Any] | None = None) -> reader.ShardReader | None:
    """Open the shards, or the table, given as a data set, a folder or a URL; None for anything else."""
    if isinstance(source, ShardDataset):
        return source.shards
    if isinstance(source, list | tuple) and len(source) == 1:
        source = source[0]
    if not isinstance(source, str | PathLike) or any(sign in fspath(source) for sign in "*?["):
        return None
    remote = is_url(fspath(source))
    if remote and is_read_only(fspath(source)):
        return None
    storage = open_storage(source, storage_options if remote else None)
    try:
        exists = storage.size(SPEC) is not None
    except OSError:  # a file or an inaccessible folder: reading the source raises a better error
        exists = False
    return reader.open_reader(storage) if exists else None


def _grouped(entries: Sequence[ShardEntry], most_rows: int) -> list[tuple[ShardEntry, ...]]:
    """Group consecutive shards of at most `most_rows` rows in total."""
    groups: list[list[ShardEntry]] = []
    held = 0
    for entry in entries:
        if not groups or held + entry.rows > most_rows:
            groups.append([])
            held = 0
        groups[-1].append(entry)
        held += entry.rows
    return [tuple(group) for group in groups]
