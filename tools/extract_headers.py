"""Copies the header files of a Python wheel: the folder in it that holds HEADER, and everything below that folder.

usage: extract_headers.py WHEEL HEADER FOLDER
"""

import pathlib
import sys
import zipfile

HEADER_SUFFIXES = {".h", ".hpp", ".cuh", ".inl"}


def main():
    wheel, header, folder = sys.argv[1:]
    with zipfile.ZipFile(wheel) as archive:
        homes = [pathlib.PurePosixPath(name).parent for name in archive.namelist() if name.split("/")[-1] == header]
        if not homes:
            sys.exit(f"{wheel}: has no {header}")
        home = min(homes, key=lambda path: len(path.parts))
        for name in archive.namelist():
            path = pathlib.PurePosixPath(name)
            if path.suffix in HEADER_SUFFIXES and home in path.parents and ".." not in path.parts:
                target = pathlib.Path(folder, path.relative_to(home))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))


if __name__ == "__main__":
    main()
