"""The text of a file, whatever its encoding and packing, some of it at a time."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from typing import Any, BinaryIO

from gwi.exceptions import UserError
from gwi.tables.addresses import AnyPath

# Bytes of text read at a time.
BLOCK = 1 << 20
# Blank lines before the first row: gzip packs a thousand million of them into a small file.
MOST_BLANK = 10**6


class Utf8(io.RawIOBase):
    """The characters of a file as UTF-8, whatever its encoding; refuses NUL and what is no text, naming the line."""

    def __init__(self, path: AnyPath, is_compressed: bool, content: bytes | None = None):
        self._path = path
        self._file: BinaryIO = path.open("rb") if content is None else io.BytesIO(content)
        self._raw: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=self._file) if is_compressed else self._file
        self._decoder: codecs.IncrementalDecoder | None = None
        self._line = 1
        self._pending = memoryview(b"")
        self._started = self._ended = self._ends_with_return = False
        self._size = max(path.stat().st_size if content is None else len(content), 1)
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
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes; the usual way makes room for all of them first, however few there are."""
        if size < 0:
            return self.readall()
        while not self._pending and not self._ended:
            self._pending = memoryview(self._next().encode())
        found, self._pending = self._pending[:size].tobytes(), self._pending[size:]
        return found

    def _next(self) -> str:
        try:
            block = self._raw.read(BLOCK)
        except (EOFError, OSError, zlib.error) as error:
            what = "cannot be read" if self._raw is self._file else "is a damaged gzip file"
            raise UserError(f"{self._path} {what} ({error}).") from error
        self._ended = not block
        if self._decoder is None:
            is_wide = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            self._decoder = codecs.getincrementaldecoder("utf-16" if is_wide else "utf-8-sig")()
        try:
            text = self._decoder.decode(block, self._ended)
        except UnicodeDecodeError as error:
            line = self._line + _num_ends(error.object[: error.start].decode(error.encoding, "ignore"))
            kind = "UTF-16" if "16" in error.encoding else "UTF-8"
            raise UserError(f"{self._path}, line {line}: the text is not {kind}; save the file as UTF-8.") from error
        nul = text.find("\0")
        if nul >= 0:
            line = self._line + _num_ends(text[:nul])
            raise UserError(f"{self._path}, line {line}: there is a NUL character; this is not a text file, or it is damaged.")
        # A line end of two characters may be cut by the blocks.
        num_ends = _num_ends(text) - (self._ends_with_return and text.startswith("\n"))
        self._ends_with_return = text.endswith("\r") or (self._ends_with_return and not text)
        self._line += num_ends
        if not self._started:
            text = text.lstrip("\r\n")
            self.num_skipped += num_ends - _num_ends(text)
            self._started = bool(text)
            if self.num_skipped > MOST_BLANK:
                raise UserError(
                    f"{self._path} begins with more than {MOST_BLANK} blank lines; this is not a table, or it is damaged."
                )
        self.num_quotes += text.count('"') if '"' in text else 0
        return text


def _num_ends(text: str) -> int:
    """Of lines, whether they end with a line feed, a carriage return, or both."""
    # To look for a character is several times as fast as to count it, and most texts have no returns.
    return text.count("\n") + (text.count("\r") - text.count("\r\n") if "\r" in text else 0)
