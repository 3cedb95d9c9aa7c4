"""One picture and where it came from."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Color = Literal["bgr", "rgb"]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One picture with the header that every output keeps.

    image: uint8 or uint16; (H, W) grey, (H, W, 3), or (H, W, 4) whose alpha is ignored. May be
        a view; it is never written to.
    stamp_ns: time of acquisition, nanoseconds of the source's clock.
    frame_id: optical frame of the camera (REP 103).
    sequence: number of the picture in its source, counted from 0.
    color: channel order of the first three channels.
    """

    image: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
    stamp_ns: int = 0
    frame_id: str = ""
    sequence: int = 0
    color: Color = "bgr"

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return int(self.image.shape[1]), int(self.image.shape[0])
