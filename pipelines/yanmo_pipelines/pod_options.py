"""What a compiled pipeline says of its pods: options of `compile`, `submit` and `doctor`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from yanmo.options.fields import Options, opt
from yanmo.options.values import brief
from yanmo_pipelines.resources import COLUMNS, SMALL, STORE_SECRET, images_of, secrets_of

_SECRET = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class PodOptions(Options, group="pods"):
    """What a run's pods may use, where their images are, which Secret names their store."""

    resources: str = opt(
        SMALL,
        "what pods may use: small is one node of a few cores and gigabytes, gpu a node with GPUs",
        choices=tuple(COLUMNS),
        kind="environment",
        often=True,
    )
    image_prefix: str = opt(
        "",
        "put before each image's name, such as registry.example/team/; default: none",
        kind="environment",
        variable="YANMO_IMAGE_PREFIX",
        metavar="PREFIX",
    )
    ray: bool = opt(
        False,
        "give the data stages the image yanmo-data-ray: without it a run with data_engine=ray is refused",
        kind="environment",
    )
    store_secret: str = opt(
        STORE_SECRET,
        "name of the Secret that says where the store is and holds its credentials, for a namespace with "
        "several stores",
        kind="environment",
        metavar="NAME",
    )

    def contradictions(self) -> list[str]:
        """Return a name that no Secret can have."""
        if _SECRET.fullmatch(self.store_secret):
            return []
        found = brief(self.store_secret)
        return [f"--store-secret {found}: expected a Secret's name: small letters, digits, - and ."]

    @property
    def images(self) -> dict[str, str]:
        """Return the images: see `images_of`."""
        return images_of(self.image_prefix, self.ray)

    @property
    def secrets(self) -> dict[str, str]:
        """Secret -> folder of the pods in which it is mounted, if it is there."""
        return secrets_of(self.store_secret)
