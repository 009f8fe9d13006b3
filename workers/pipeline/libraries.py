"""Which shared libraries of the host the ELF files of a filesystem load."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

_ELF64_LITTLE_ENDIAN: Final = b"\x7fELF\x02\x01"
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY: Final = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5


def host_libraries(files: Iterable[Path], search: Sequence[Path]) -> dict[str, Path | None]:
    """Return the libraries outside of ``files`` that these, and in turn the libraries themselves, are linked against.

    By name, each with its real path in the first folder of ``search`` that has it, or ``None``. What a program opens
    by itself (``dlopen``) is not found.
    """
    files = list(files)
    own = {file.name for file in files}
    found: dict[str, Path | None] = {}
    pending = files
    while pending:
        names = {name for file in pending for name in needed(file)} - own - found.keys()
        resolved = {name: _find(name, search) for name in names}
        found |= resolved
        pending = [path for path in resolved.values() if path is not None]
    return found


def needed(file: Path) -> list[str]:
    """Return the names of the libraries that an ELF file is linked against; none when it is no 64-bit ELF file."""
    try:
        with file.open("rb") as stream:
            header = stream.read(64)
            if header[:6] != _ELF64_LITTLE_ENDIAN:
                return []
            content = header + stream.read()
        return list(_needed(content))
    except (OSError, struct.error, ValueError):
        return []


def _needed(content: bytes) -> Iterator[str]:
    (table,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [_PROGRAM_HEADER.unpack_from(content, table + index * size) for index in range(count)]
    loads = [(address, offset, length) for kind, _, offset, address, _, length, *_ in segments if kind == _PT_LOAD]
    for kind, _, offset, _, _, length, *_ in segments:
        if kind != _PT_DYNAMIC:
            continue
        entries = []
        for position in range(offset, offset + length, _DYNAMIC_ENTRY.size):
            tag, value = _DYNAMIC_ENTRY.unpack_from(content, position)
            if tag == _DT_NULL:
                break
            entries.append((tag, value))
        for table_address in (value for tag, value in entries if tag == _DT_STRTAB):
            strings = _file_offset(table_address, loads)
            for name in (value for tag, value in entries if tag == _DT_NEEDED):
                start = strings + name
                yield content[start : content.index(0, start)].decode()


def _file_offset(address: int, loads: Sequence[tuple[int, int, int]]) -> int:
    for start, offset, length in loads:
        if start <= address < start + length:
            return address - start + offset
    raise ValueError(f"address {address:#x} lies in no loaded segment")


def _find(name: str, search: Sequence[Path]) -> Path | None:
    for folder in search:
        if (folder / name).exists():
            return (folder / name).resolve()
    return None
