"""Files that have an address, such as s3://bucket/rows.parquet, through fsspec; what goes wrong there is one sentence."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

from gwi.exceptions import OutputError, UserError

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_WEB = ("http", "https")
# Where an upload that ends early leaves nothing under its name: there is no need to write beside and rename.
_WHOLE_OR_NOTHING = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "tos")


@dataclass(frozen=True)
class Remote:
    """An address, with those methods of a `pathlib.Path` that files are read and written with.

    Attributes:
        url: the address.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, str]:
        return {"url": self.url}

    def __lt__(self, other: Remote) -> bool:
        return self._pure < other._pure

    @property
    def protocol(self) -> str:
        """What stands before ://."""
        return self.url.split("://", 1)[0].lower()

    @cached_property
    def fs(self) -> Any:
        """fsspec's file system."""
        import fsspec

        with reading(self):
            return fsspec.core.url_to_fs(self.url)[0]

    @property
    def _fresh(self) -> Any:
        """The file system without what it remembers of folders: others write there too."""
        self.fs.invalidate_cache()
        return self.fs

    @cached_property
    def reader(self) -> Any:
        """The same, to open files from."""
        import fsspec

        if self.protocol not in (*_WEB, "memory"):
            return self.fs
        # A copy for as long as this object lives: many web servers give no parts of a file, and a file in memory has one place
        # for all who read it.
        return fsspec.filesystem("simplecache", fs=self.fs, skip_instance_cache=True)

    @property
    def inside(self) -> str:
        """What the file system calls it."""
        return self.url if self.protocol in _WEB else str(self.fs._strip_protocol(self.url))

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.url.split("://", 1)[1].split("?")[0] if self.protocol in _WEB else self.url.split("://", 1)[1])

    @property
    def name(self) -> str:
        """The last part."""
        return self._pure.name

    @property
    def suffix(self) -> str:
        """The last ending of the name."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All endings of the name."""
        return self._pure.suffixes

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url.rstrip('/')}/{name}")

    def relative_to(self, folder: Remote) -> PurePosixPath:
        """The part behind a folder."""
        return PurePosixPath(self.url.removeprefix(folder.url.rstrip("/") + "/"))

    def exists(self) -> bool:
        """Whether there is something."""
        with reading(self):
            return bool(self._fresh.exists(self.inside))

    def is_dir(self) -> bool:
        """Whether it is a folder; what a web server shows is a file."""
        if self.protocol in _WEB:
            return False
        with reading(self):
            return bool(self._fresh.isdir(self.inside))

    def is_file(self) -> bool:
        """Whether it is a file."""
        return self.exists() and not self.is_dir()

    def is_fifo(self) -> bool:
        """No."""
        return False

    is_socket = is_fifo

    def samefile(self, other: Any) -> bool:
        """Whether the other has the same address."""
        return str(other) == self.url

    def stat(self) -> Any:
        """Its size."""
        with reading(self):
            return SimpleNamespace(st_size=int(self._fresh.size(self.inside) or 0))

    def open(self, mode: str = "rb") -> Any:
        """To read from."""
        with reading(self):
            return self.reader.open(self.inside, mode)

    def read_bytes(self) -> bytes:
        """All of it."""
        with reading(self):
            return self.fs.cat_file(self.inside)

    def read_text(self) -> str:
        """All of it."""
        return self.read_bytes().decode()

    def rglob(self, pattern: str = "*") -> Iterator[Remote]:
        """All files below."""
        del pattern
        with reading(self):
            found = self._fresh.find(self.inside)
        start = self.inside.rstrip("/") + "/"
        yield from (self / path.removeprefix(start) for path in found)

    def glob(self, pattern: str) -> Iterator[Remote]:
        """Files directly below whose name is like this."""
        yield from (part for part in self.rglob() if part == self / part.name and part._pure.match(pattern))

    def mkdir(self, mode: int = 0o777, parents: bool = True, exist_ok: bool = True) -> None:
        """A folder, where there are any; who may read it is decided there."""
        del mode, parents
        with writing(self):
            self.fs.makedirs(self.inside, exist_ok=exist_ok)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove it."""
        with writing(self):
            if not missing_ok or self.fs.exists(self.inside):
                self.fs.rm_file(self.inside)

    def upload(self, file: str | os.PathLike[str]) -> None:
        """Take the content of a file on this machine, all of it or nothing.

        Stores of objects do so by themselves. Elsewhere it is written beside and renamed.
        """
        with writing(self):
            self._refuse_web()
            if self.protocol in _WHOLE_OR_NOTHING:
                self.fs.put_file(os.fspath(file), self.inside)
                return
            beside = f"{self.inside.rpartition('/')[0]}/.gwi-{secrets.token_hex(8)}.part"
            try:
                self.fs.put_file(os.fspath(file), beside)
                self.fs.mv(beside, self.inside)
            except BaseException:
                with suppress(Exception):
                    self.fs.rm_file(beside)
                raise

    def _refuse_web(self) -> None:
        if self.protocol in _WEB:
            raise NotImplementedError

    def try_out(self) -> None:
        """Write a little beside it and take it away again."""
        beside = f"{self.inside.rpartition('/')[0]}/.gwi-{secrets.token_hex(8)}.part"
        with writing(self):
            self._refuse_web()
            self.fs.pipe_file(beside, b"gwi")
            # Some may write and not remove.
            with suppress(Exception):
                self.fs.rm_file(beside)


def as_path(path: str | os.PathLike[str]) -> Any:
    """A `Path` on this machine, or a `Remote` for an address.

    Raises:
        UserError: for an address that was made a `Path`, which has lost a stroke.
    """
    if isinstance(path, Remote):
        return path
    # What has a protocol is a path of universal_pathlib.
    text = str(path) if isinstance(path, str) or hasattr(path, "protocol") else os.fspath(path)
    found = _ADDRESS.match(text)
    if found is None:
        if isinstance(path, Path) and re.match(r"(s3|gs|gcs|abfs|https?|memory|file):/", text) and not path.parent.exists():
            raise UserError(f"{text} was an address before it was made a Path; give it as text.")
        return Path(text)
    if found[1].lower() in ("file", "local"):
        return Path(text[found.end() :])
    return Remote(text)


# Where a file or folder is.
AnyPath = Path | Remote


@contextmanager
def reading(remote: Remote) -> Iterator[None]:
    """Faults inside are those of reading this address, each one sentence.

    Raises:
        FileNotFoundError: when there is no such file.
        UserError: for anything else.
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{remote} does not exist{_said(error, remote)}.") from error
    # Each keeper of files raises errors of its own package, which have no common class; all of them become one sentence.
    except Exception as error:
        raise UserError(_sentence(error, remote) or f"{remote} cannot be read{_said(error, remote)}.") from error


@contextmanager
def writing(remote: Remote) -> Iterator[None]:
    """Faults inside are those of writing to this address.

    Raises:
        OutputError: in a sentence.
        UserError: when there is no way to write there.
    """
    try:
        yield
    except (UserError, OutputError):
        raise
    except NotImplementedError as error:
        raise UserError(f"{remote.protocol}:// is for reading; write {remote} to another place.") from error
    except Exception as error:
        if sentence := _sentence(error, remote):
            raise UserError(sentence) from error
        reason = _said(error, remote)[2:-1] or type(error).__name__
        raise OutputError(getattr(error, "errno", None), reason, remote.url) from error


def _sentence(error: Exception, remote: Remote) -> str:
    """Where something is missing on this machine: what to install."""
    if isinstance(error, ImportError):
        return f"{remote} needs a package that is not installed ({error}); install it with pip."
    if isinstance(error, ValueError) and "protocol not known" in str(error).lower():
        return f"{remote}: there is no file system {remote.protocol}://; fsspec.available_protocols() lists those that exist."
    return ""


def _said(error: Exception, remote: Remote) -> str:
    """What a library says was wrong, in brackets, where that is more than the address."""
    text = str(getattr(error, "strerror", None) or error).strip()
    first = text.splitlines()[0].rstrip(".") if text else ""
    if first in ("", remote.url, remote.url.split("://", 1)[1]) or first.strip("/") == remote.url.split("://", 1)[1].strip("/"):
        return "" if isinstance(error, FileNotFoundError) else f" ({type(error).__name__})"
    return f" ({first})"
