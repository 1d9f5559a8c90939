"""Retries of storage calls over the network after transient faults, within a time limit."""

from __future__ import annotations

import errno
import http.client
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

DEFAULT_RETRY_SECONDS = 60.0
"""Default number of seconds after its first fault during which a call is retried."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
# 409: another conditional request on the same key is under way
_PASSING_STATUS = {408, 409, 425, 429, 500, 502, 503, 504}
_PASSING_CODES = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
# class names, because these libraries are imported only if a store needs them
_PASSING_KINDS = {
    "ClientConnectionError",
    "ClientPayloadError",
    "FlexibleChecksumError",
    "FSTimeoutError",
    "HTTPClientError",
    "IncompleteReadError",
    "ResponseParserError",
    "ResponseStreamingError",
}
_LASTING_KINDS = {"SSLError", "ClientSSLError", "ProxyConnectionError", "FileExpired"}
_KINDS: tuple[type[OSError], ...] = (FileNotFoundError, FileExistsError, PermissionError, TimeoutError)
_of_thread = threading.local()
_jitter = random.SystemRandom()  # leaves the program's own random state unchanged


class Retries:
    """Caller of one store that retries after transient faults and counts the retries.

    Parameters
    ----------
    seconds : float
        Time limit for retries after the first fault of a call, in seconds; the last call may end later.
    where : str
        Name of the store, for messages.
    hide : callable, optional
        Removes secrets from a text. By default the text is unchanged.
    """

    def __init__(self, seconds: float, where: str, hide: Callable[[str], str] = str) -> None:
        self.seconds, self.where = seconds, where
        self.count = 0
        """Number of retries by this process."""
        self._hide = hide

    def call(self, what: str, function: Callable[[], Result]) -> Result:
        """Call a function until it returns, its fault is permanent or the time limit is reached.

        Parameters
        ----------
        what : str
            Description of the call, for messages.
        function : callable
            Function to call. It must be safe to call again, even if it took effect and only its answer was lost.

        Raises
        ------
        OSError
            `FileNotFoundError`, `FileExistsError` or `PermissionError` if the fault is of that kind, else an error with
            `errno.EIO`. The text is the store's answer without secrets.
        """
        tries = 0
        deadline = None
        while True:
            tries += 1
            try:
                result = function()
            except Exception as fault:
                now = time.monotonic()
                deadline = deadline or now + self.seconds
                wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)) * _jitter.uniform(0.5, 1)
                passing = _passes(fault)
                if not passing or now + wait > deadline:
                    told = self._told(fault, f"; tried {tries} times in {self.seconds:g} s" if passing else "")
                    logger.debug("%s: %s: %s", self.where, what, type(fault).__name__)
                    self._tell_count(what, tries, "ended by an error")
                    raise told from None  # the library's own error may hold secrets, and may not be picklable
                log = logger.warning if tries == 3 else logger.info
                log(
                    "%s: %s: %s; trying again, for at most %g s",
                    self.where,
                    what,
                    self._told(fault).strerror,
                    self.seconds,
                )
                self.count += 1
                _of_thread.count = made_again() + 1
                time.sleep(wait)
            else:
                self._tell_count(what, tries, "done")
                return result

    def _tell_count(self, what: str, tries: int, outcome: str) -> None:
        if tries > 1:
            counts = f"{tries - 1} retries; {self.count} by this process so far"
            logger.warning("%s: %s: %s after %s", self.where, what, outcome, counts)

    def _told(self, fault: Exception, more: str = "") -> OSError:
        status, code = status_of(fault), code_of(fault)
        text = next((found for link in _chain(fault) if (found := _message(link))), type(fault).__name__)
        if status is not None:
            named = "" if code is None or code == str(status) else f" {code}"
            text = f"{status}{named}: {text}"
        kind = next((kind for kind in _KINDS if isinstance(fault, kind)), OSError)
        if status == 412:  # our condition failed: the file must not exist
            kind = FileExistsError
        number = {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST, PermissionError: errno.EACCES}
        return kind(number.get(kind, errno.EIO), self._hide(text)[:1000] + more)


def made_again() -> int:
    """Count the retries of this thread so far, on any store."""
    return getattr(_of_thread, "count", 0)


def status_of(fault: BaseException) -> int | None:
    """HTTP status that caused a fault; None if the store gave no answer."""
    for link in _chain(fault):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            status = getattr(link, "status", None) or getattr(link, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def code_of(fault: BaseException) -> str | None:
    """Error code of the store, such as "NoSuchBucket"; None if it gave none."""
    for link in _chain(fault):
        response = getattr(link, "response", None)
        if isinstance(response, dict) and response.get("Error", {}).get("Code"):
            return str(response["Error"]["Code"])
    return None


def _passes(fault: Exception) -> bool:
    """Return True if the same call may succeed later."""
    names = {kind.__name__ for link in _chain(fault) for kind in type(link).__mro__}
    if names & _LASTING_KINDS:
        return False
    status = status_of(fault)
    if status is not None and status >= 300:
        return status in _PASSING_STATUS or code_of(fault) in _PASSING_CODES
    if code_of(fault) in _PASSING_CODES:  # an error inside an answer of 200
        return True
    lost = (ConnectionError, TimeoutError, EOFError, http.client.HTTPException)
    return any(isinstance(link, lost) for link in _chain(fault)) or bool(names & _PASSING_KINDS)


def _message(fault: BaseException) -> str:
    response = getattr(fault, "response", None)
    if isinstance(response, dict) and response.get("Error", {}).get("Message"):
        return str(response["Error"]["Message"])
    return re.sub(r"\s+", " ", str(getattr(fault, "strerror", None) or fault)).strip()


def _chain(fault: BaseException) -> Iterator[BaseException]:
    """Iterate from a fault to its causes."""
    link: BaseException | None = fault
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__
