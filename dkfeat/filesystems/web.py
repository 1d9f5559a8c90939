"""HTTP client that checks the range and the file size in the answers to range requests."""

from __future__ import annotations

import errno
from typing import Any


async def checked_client(**options: Any) -> Any:
    """Make a session of aiohttp for fsspec, as its option ``get_client`` does.

    A request of a range with the size of the file as ``trace_request_ctx`` fails with an `OSError` if the answer has
    another range, or states another size: fsspec would take the bytes for those asked for, or end the file too early.
    """
    import aiohttp  # late import: only HTTP sources need it

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(_check_range)
    return aiohttp.ClientSession(**{**options, "trace_configs": [*options.get("trace_configs", ()), trace]})


async def _check_range(_: Any, context: Any, request: Any) -> None:
    size, answer = context.trace_request_ctx, request.response
    asked = request.headers.get("Range", "").removeprefix("bytes=")
    if size is None or not asked:
        return
    if answer.status == 206:
        found, expected = answer.headers.get("Content-Range", "no Content-Range"), f"bytes {asked}/{size}"
        is_wrong = found not in (expected, f"bytes {asked}/*")
    elif answer.status == 200 and "Content-Encoding" not in answer.headers:
        found, expected = answer.headers.get("Content-Length", str(size)), str(size)
        is_wrong = found != expected
    else:
        return
    if is_wrong:
        raise OSError(
            errno.EIO,
            f"the server sent {found} in place of {expected}; if the file has changed since it was listed, run again, "
            "else download it and name the copy",
        )
