"""Pictures of random halls with exact labels, as a COCO data set for training.

python -m perception.simulation.frames OUT --count 300 --seed 1
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from perception.errors import WaysightError
from perception.files import atomic_path, write_json
from perception.labels import FACTORY
from perception.simulation.hall import HEIGHT, LANE, WIDTH
from perception.simulation.scenario import Actor, Scenario, Variation
from perception.simulation.world import World

PICTURES_PER_HALL = 3
"""Building a hall costs as much as a few pictures of it."""

SMALLEST = 6
LEAST_SEEN = 0.2
"""Boxes narrower or lower than 6 px, or of which less than a fifth is seen, are marked as crowd,
which training ignores."""


def random_hall(seed: int) -> Variation:
    """A hall with up to eight people, forklifts and pallets anywhere in lane and aisles."""
    rng = np.random.default_rng([seed, 7])
    gaps = tuple(sorted(float(x) for x in rng.uniform(2, 16, rng.integers(1, 3))))
    actors = []
    for _ in range(int(rng.integers(0, 9))):
        kind = str(rng.choice(FACTORY.names, p=[0.5, 0.25, 0.25]))
        if rng.random() < 0.7:
            place = (float(rng.uniform(2, 16)), float(rng.uniform(-LANE + 0.4, LANE - 0.4)))
        else:
            gap = float(rng.choice(gaps))
            side = float(rng.choice([-1, 1]))
            place = (gap + float(rng.uniform(-0.6, 0.6)), side * float(rng.uniform(1.2, 6)))
        angle = float(rng.uniform(-math.pi, math.pi))
        # A path makes the actor face along it; it is never walked here.
        ahead = (place[0] + math.cos(angle), place[1] + math.sin(angle))
        actors.append(Actor(kind, place, (ahead,), 0.0, 0.0))
    scenario = Scenario("frames", "random hall", 1.0, gaps=gaps)
    return Variation(scenario, seed, 1.0, tuple(actors), math.inf)


def render(out: Path, count: int, seed: int) -> dict[str, int]:
    """Write `count` pictures to out/images and their labels to out/annotations.json.

    Returns the number of boxes of each class.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    number = 0
    while len(images) < count:
        world = World(random_hall(seed * 100_000 + number))
        number += 1
        rng = np.random.default_rng([seed, number])
        try:
            for _ in range(min(PICTURES_PER_HALL, count - len(images))):
                world.look_from(
                    float(rng.uniform(0, 12)),
                    float(rng.uniform(-0.5, 0.5)),
                    float(rng.normal(0, 0.25)),
                )
                if world.clearance() < 0.3:
                    continue
                brightness = float(rng.choice([rng.uniform(0.25, 0.6), rng.uniform(0.7, 1.4)]))
                _write(world, out, images, annotations, brightness, float(rng.uniform(1, 8)))
        finally:
            world.close()
    write_json(
        out / "annotations.json",
        {
            "info": {"description": "Simulated factory hall, exact boxes of visible pixels"},
            "images": images,
            "annotations": annotations,
            "categories": [
                {"id": index + 1, "name": name} for index, name in enumerate(FACTORY.names)
            ],
        },
    )
    return {
        name: sum(a["category_id"] == index + 1 and not a["iscrowd"] for a in annotations)
        for index, name in enumerate(FACTORY.names)
    }


def _write(
    world: World,
    out: Path,
    images: list[dict[str, Any]],
    annotations: list[dict[str, Any]],
    brightness: float,
    noise: float,
) -> None:
    picture, truth = world.labelled_picture(brightness, noise)
    name = f"images/{len(images):06d}.jpg"
    with atomic_path(out / name) as path:
        cv2.imwrite(
            str(path), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 92]
        )
    images.append({"id": len(images) + 1, "file_name": name, "width": WIDTH, "height": HEIGHT})
    for box, label, seen in zip(
        truth.xywh.tolist(), truth.labels.tolist(), truth.scores.tolist(), strict=True
    ):
        annotations.append(
            {
                "id": len(annotations) + 1,
                "image_id": len(images),
                "category_id": label + 1,
                "bbox": [round(value, 1) for value in box],
                "area": round(box[2] * box[3], 1),
                "iscrowd": int(min(box[2], box[3]) < SMALLEST or seen < LEAST_SEEN),
            }
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the data set")
    parser.add_argument("--count", type=int, default=300, help="pictures (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the halls (default 1)")
    args = parser.parse_args()
    try:
        print(render(args.out, args.count, args.seed))
    except WaysightError as error:
        print(f"waysight: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
