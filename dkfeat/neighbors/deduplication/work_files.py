"""Folder with the files that the stages of a search leave to each other; each exists whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.store.storage.base import DATA
from dkfeat.store.storage.local import LocalStorage

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Files by their names, in a folder that the driver and all workers see.

    A task whose file exists is done. As its bytes depend on the settings of the search alone, a task may run again.
    """

    storage: LocalStorage

    @classmethod
    def of(cls, folder: str | Path, *, durable: bool = True) -> Self:
        """Create the folder, or continue to use it; temporary files of a dead run are removed.

        Files survive a crash of the machine only if they are durable.
        """
        storage = LocalStorage(str(folder), durable=durable)
        storage.prepare()
        storage.sweep()
        return cls(storage)

    def check_seen(self) -> None:
        """Raise `ConfigError` in a worker that does not see the folder of the driver."""
        if not self.path("").is_dir():
            raise ConfigError(
                f"a worker does not see the folder {self.storage.url}; choose a target, or without one set "
                "temporary-directory in Dask's configuration to a folder, that all workers share"
            )

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return Path(self.storage.url, DATA, name)

    def has(self, name: str) -> bool:
        """Return True if a file exists."""
        return self.path(name).exists()

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Create a file with the bytes of an array, unless it exists."""
        with suppress(FileExistsError):
            self.storage.create(f"{DATA}/{name}", values.data.cast("B") if values.size else b"")

    def values(self, name: str, dtype: DTypeLike, offset: int = 0) -> NDArray[Any]:
        """Return the values in a file after `offset` bytes, which are read when they are used."""
        with self.path(name).open("rb") as file:
            if os.fstat(file.fileno()).st_size <= offset:
                return np.empty(0, dtype)
            return np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), dtype, offset=offset)
