"""What all parts share: where stores are made, how much of everything is tried, the undisturbed run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servers import s3

from chaos.place import FilePlace, Place, S3Place, leftovers, survey
from chaos.plan import Skip, say
from chaos.profile import Profile, take_profile
from chaos.start import STAGES


@dataclass
class Ground:
    """One kind of store (`file` or `s3`), and a folder for everything else."""

    kind: str
    folder: Path
    seed: int
    stages: tuple[str, ...] = tuple(STAGES)
    """The stages that are run, from the first on."""
    brief: bool = False
    count: int = 0
    """How many are tried of what is drawn; 0: each part's own number."""
    case: str = ""
    """Beginning of the names of the cases that are wanted."""
    keep: bool = False
    """Whether stores are left behind for a look."""
    server: s3.S3Server | None = None
    bucket: str = ""
    _profile: Profile | None = field(default=None, repr=False)

    def times(self, whole: int, brief: int) -> int:
        """How often something drawn is tried."""
        return self.count or (brief if self.brief else whole)

    @contextmanager
    def place(self, endpoint: str = "") -> Iterator[Place]:
        """An empty store that is removed afterwards; `endpoint` is another way to the S3 server."""
        place: Place = FilePlace.new(self.folder)
        if self.server is not None:
            place = S3Place.new(self.server, self.bucket, self.folder)
            place.endpoint = endpoint
        try:
            yield place
        finally:
            if not self.keep:
                place.remove()

    def on_s3(self) -> s3.S3Server:
        """The S3 server.

        Raises:
            Skip: this ground has none.
        """
        if self.server is None:
            raise Skip("a folder has no server")
        return self.server

    @property
    def profile(self) -> Profile:
        """The undisturbed run, made at the first call."""
        if self._profile is None:
            say(f"the undisturbed run on {self.kind} ...")
            with self.place() as place:
                self._profile = take_profile(place, self.folder, self.stages)
        return self._profile

    def differences(self, place: Place, *, is_complete: bool = True, may_leave: bool = False) -> list[str]:
        """What is wrong in a store, compared with that of the undisturbed run.

        Args:
            is_complete: whether all stages have run in it.
            may_leave: whether objects that nothing names are right, as after a kill.
        """
        found, expected = survey(place), self.profile.survey.digests
        wrong = [
            f"{name}: content {found.digests.get(name)}, undisturbed {expected.get(name)}"
            for name in ({**expected, **found.digests} if is_complete else found.digests)
            if found.digests.get(name) != expected.get(name)
        ]
        left = [] if may_leave else [f"left behind: {name}" for name in leftovers(found)]
        return [*found.faults, *wrong, *left]


@contextmanager
def open_ground(kind: str, folder: Path, seed: int, **more: object) -> Iterator[Ground]:
    """A ground of kind `file` or `s3`; for the latter a server is started unless the environment names one.

    Args:
        more: other fields of Ground.

    Raises:
        Skip: there is no S3 server; says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ground = Ground(kind, folder.absolute(), seed, **more)  # type: ignore[arg-type]
    if kind == "s3":
        if reason := s3.absent():
            raise Skip(reason)
        ground.server = s3.borrow(f"chaos-{os.getpid()}")
        ground.bucket = ground.server.new_bucket()
    try:
        yield ground
    finally:
        if ground.server is not None and not ground.keep:
            ground.server.remove_bucket(ground.bucket)
