"""``python -m tests.docs.run_notebook NOTEBOOK FOLDER OUT`` runs a notebook in a folder and writes it with its outputs.

In a process of its own, as nbclient leaves sockets behind that a test session would be blamed for.
"""

from __future__ import annotations

import sys
import tempfile

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def run(path: str, folder: str, out: str) -> None:
    """Run a notebook; a cell that fails ends it and the process, with the kernel's traceback."""
    notebook = nbformat.read(path, as_version=4)
    # sockets in files, since two kernels that start at once may choose the same port; their paths must be short
    with tempfile.TemporaryDirectory(prefix="nb", dir="/tmp") as sockets:
        kernel = KernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        try:
            NotebookClient(notebook, km=kernel, timeout=None, resources={"metadata": {"path": folder}}).execute()
        except CellExecutionError as error:
            sys.exit(str(error))
        finally:
            kernel.shutdown_kernel()
            nbformat.write(notebook, out)


if __name__ == "__main__":
    run(*sys.argv[1:])
