"""Records of fits in SQLite: each is written once, in one transaction, and read back to know what is left to do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Identity(Protocol):
    """Which fit: the values of the columns that tell records apart, in their order."""

    def __iter__(self) -> Iterator[Any]: ...

    def __hash__(self) -> int: ...

    def kind(self) -> tuple[str, str]:
        """Fits of one kind take about the same time: data set and method."""
        ...


K = TypeVar("K", bound=Identity)


class Store(Generic[K]):
    """The records in one file.

    A record is there whole or not at all, and a second one of the same key is refused by the primary key.

    Args:
        path: of the file, which is made where it is not there.
        key: from the values of `identity` to a key.
        identity: columns that tell records apart, with their SQL types.
        columns: all others, with their SQL types; ``failure``, a text, and ``finished``, the time, are added.
    """

    def __init__(self, path: Path, key: Callable[..., K], identity: Mapping[str, str], columns: Mapping[str, str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._key = key
        self._identity = tuple(identity)
        self._names = ", ".join(f'"{name}"' for name in identity)
        fields = [f'"{name}" {kind} NOT NULL' for name, kind in identity.items()]
        fields += [f'"{name}" {kind}' for name, kind in columns.items()]
        with closing(self._open()) as connection, connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS fits ({', '.join(fields)}, failure TEXT, finished TEXT NOT NULL, "
                f"PRIMARY KEY ({self._names}))"
            )
            known = {row[1] for row in connection.execute("PRAGMA table_info(fits)")}
            # What older files do not have is empty in their records.
            for name, kind in columns.items():
                if name not in known:
                    connection.execute(f'ALTER TABLE fits ADD COLUMN "{name}" {kind}')

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def key(self, record: Mapping[str, Any]) -> K:
        """Of a record."""
        return self._key(*(record[name] for name in self._identity))

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write the records of one task together."""
        with closing(self._open()) as connection, connection:
            for record in records:
                values = {k: json.dumps(v, ensure_ascii=False) if isinstance(v, Mapping) else v for k, v in record.items()}
                names = ", ".join(f'"{name}"' for name in values)
                marks = ", ".join("?" for _ in values)
                connection.execute(
                    f"INSERT INTO fits ({names}, finished) VALUES ({marks}, strftime('%Y-%m-%dT%H:%M:%SZ'))",
                    list(values.values()),
                )

    def keys(self, *, failed: bool | None = None) -> set[K]:
        """Of all records, or of those that failed, or that did not."""
        condition = {None: "", True: "WHERE failure IS NOT NULL", False: "WHERE failure IS NULL"}[failed]
        with closing(self._open()) as connection:
            return {self._key(*row) for row in connection.execute(f"SELECT {self._names} FROM fits {condition}")}

    def forget(self, keys: Iterable[K]) -> None:
        """Take records out, so that they are made again."""
        condition = " AND ".join(f'"{name}" = ?' for name in self._identity)
        with closing(self._open()) as connection, connection:
            for key in keys:
                connection.execute(f"DELETE FROM fits WHERE {condition}", tuple(key))

    def rows(self) -> list[dict[str, Any]]:
        """All records in the order of their keys."""
        with closing(self._open()) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM fits ORDER BY {self._names}")]
