"""The same store in a bucket of a real server: cases damage a folder, and the bucket becomes as that is.

What a folder alone can have (links, pipes, modes, mounts) is no case here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servers import s3
from torture.place import S3Place
from torture.stages import CHANNEL

from hostile import damages
from hostile.cases import Case
from hostile.ground import Ground

FAMILIES = ("options", "store")
"""Those that say something of a bucket."""


@dataclass
class S3Ground(Ground):
    """A ground whose store is below `place`."""

    place: S3Place = field(kw_only=True)

    @property
    def environment(self) -> dict[str, str]:
        return self.place.server.environment()

    def fill(self, text: str) -> str:
        return super().fill(text.replace("@store", self.place.uri))

    def renew(self) -> None:
        if not self._clean:
            super().renew()
            self.publish()

    def publish(self) -> None:
        """Make the bucket hold what the folder holds, by the MD5 that it says of each object."""
        wanted = {
            os.path.relpath(path, self.store): path
            for folder, _, files in os.walk(self.store)
            for path in (os.path.join(folder, name) for name in files)
        }
        there = self.look()
        for name, path in wanted.items():
            data = Path(path).read_bytes()
            if there.get(name) != hashlib.md5(data).hexdigest():
                self.place.write(name, data)
        self.place.delete(sorted(there.keys() - wanted.keys()))

    def look(self) -> dict[str, str]:
        prefix = f"{self.place.prefix}/"
        listed = self.place.client.list_objects(self.place.bucket, prefix=prefix, recursive=True)
        return {item.object_name.removeprefix(prefix): item.etag.strip('"') for item in listed}

    def pointers(self) -> dict[str, bytes]:
        folder = f"pointers/{CHANNEL}/"
        names = [n for n in self.look() if n.startswith(folder) and n.count("/") == 2]
        return {Path(name).stem: self.place.read(name) for name in names}


def is_of_a_bucket(case: Case) -> bool:
    """Whether the case can be one of a store in a bucket."""
    label = case.name.rpartition("/")[2]
    only_of_a_folder = case.family == "store" and label in damages.INSTEAD and label != "nothing"
    return not only_of_a_folder and any("@store" in word for word in case.argv)


@contextmanager
def open_s3_ground(folder: Path) -> Iterator[S3Ground]:
    """A ground in a bucket of its own.

    Raises:
        RuntimeError: there is no S3 server; says why.
    """
    if reason := s3.absent():
        raise RuntimeError(reason)
    server = s3.borrow(f"hostile-{os.getpid()}")
    where = server.new_bucket()
    try:
        yield S3Ground(folder, place=S3Place.new(server, where, folder.absolute()))
    finally:
        server.remove_bucket(where)
