"""The characters of a text file, whatever its encoding and compression, and what a user is told when there is none."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from gwi.exceptions import UserError

# Bytes read at a time.
BLOCK = 1 << 20


class Utf8(io.RawIOBase):
    """The characters of a file as UTF-8, whatever its encoding; refuses NUL and what is no text, naming the line."""

    def __init__(self, path: Path, encoding: str, is_compressed: bool):
        self._path = path
        self._file = path.open("rb")
        self._raw: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=self._file) if is_compressed else self._file
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._line = 1
        self._pending = memoryview(b"")
        self._begun = self._ended = False
        self._size = max(path.stat().st_size, 1)
        # Blank lines at the beginning, which are not handed on; quotation marks.
        self.num_skipped = self.num_quotes = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """The file too."""
        self._file.close()
        super().close()

    @property
    def share(self) -> float:
        """How much of the file has been read."""
        return 1.0 if self._file.closed else self._file.tell() / self._size

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as characters are at hand, and say how far; 0 at the end."""
        while not self._pending and not self._ended:
            self._pending = memoryview(self._next().encode())
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _next(self) -> str:
        try:
            block = self._raw.read(BLOCK)
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"{self._path} is a damaged gzip file ({error}).") from error
        self._ended = not block
        try:
            text = self._decoder.decode(block, self._ended)
        except UnicodeDecodeError as error:
            line = self._line + error.object[: error.start].count(b"\n")
            kind = "UTF-16" if "16" in self._encoding else "UTF-8"
            raise UserError(f"{self._path}, line {line}: the text is not {kind}; save the file as UTF-8.") from error
        nul = text.find("\0")
        if nul >= 0:
            line = self._line + text.count("\n", 0, nul)
            raise UserError(f"{self._path}, line {line}: there is a NUL character; this is no text file, or a damaged one.")
        if not self._begun:
            full = len(text)
            text = text.lstrip("\r\n")
            self.num_skipped += full - len(text)
            self._line += full - len(text)
            self._begun = bool(text)
        self._line += text.count("\n")
        self.num_quotes += text.count('"')
        return text
