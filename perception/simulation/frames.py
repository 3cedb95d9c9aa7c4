"""Pictures of random halls with exact labels, as a COCO data set for training.

python -m perception.simulation.frames OUT --count 300 --seed 1
python -m perception.simulation.frames OUT --count 300 --seed 1 --near
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
from perception.simulation.hall import HEIGHT, LANE, MOUNT, WIDTH
from perception.simulation.scenario import Actor, Scenario, Variation
from perception.simulation.world import World

PICTURES_PER_HALL = 3
"""Building a hall costs as much as a few pictures of it."""

SMALLEST = 6
LEAST_SEEN = 0.2
PLAIN = 20
"""Boxes narrower or lower than 6 px are marked as crowd, which training ignores; so are those of
which less than a fifth is seen, unless that fifth is at least 20 px wide and high and reaches below
the horizon: the front of a forklift behind a rack is what the robot must see first, a helmet above
a shelf looks like the load beside it."""

EMPTY_HALLS = 3
"""With `near` every third hall holds nobody: what racks look like from close by is not a person."""


def random_hall(seed: int, near: bool = False) -> Variation:
    """A hall with up to eight people, forklifts and pallets anywhere in lane and aisles.

    near: one or two more come out of the cross aisles, mostly forklifts; every third hall holds
    nobody.
    """
    rng = np.random.default_rng([seed, 7])
    gaps = tuple(sorted(float(x) for x in rng.uniform(2, 16, rng.integers(1, 3))))
    actors = [_crossing(gaps, rng) for _ in range(int(rng.integers(1, 3)))] if near else []
    others = int(rng.integers(0, 9))
    if near and seed % EMPTY_HALLS == 0:
        actors, others = [], 0
    for _ in range(others):
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


def _crossing(gaps: tuple[float, ...], rng: np.random.Generator) -> Actor:
    """Someone between the middle of the lane and 3.5 m inside a cross aisle, facing across."""
    kind = str(rng.choice(FACTORY.names, p=[0.3, 0.6, 0.1]))
    side = float(rng.choice([-1, 1]))
    place = (float(rng.choice(gaps)) + float(rng.normal(0, 0.4)), side * float(rng.uniform(0, 3.5)))
    ahead = (place[0] + float(rng.normal(0, 0.2)), place[1] + float(rng.choice([-1, 1])))
    return Actor(kind, place, (ahead,), 0.0, 0.0)


def render(out: Path, count: int, seed: int, near: bool = False) -> dict[str, int]:
    """Write `count` pictures to out/images and their labels to out/annotations.json.

    near: from close to cross aisles, with someone coming out, and from right before people,
    forklifts and pallets.
    Returns the number of boxes of each class.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    number = 0
    while len(images) < count:
        hall = random_hall(seed * 100_000 + number, near)
        world = World(hall)
        number += 1
        rng = np.random.default_rng([seed, number])
        try:
            for _ in range(min(PICTURES_PER_HALL, count - len(images))):
                world.look_from(*(_near_view(hall, rng) if near else _view(rng)))
                if world.clearance() < (0.02 if near else 0.3):
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


def _view(rng: np.random.Generator) -> tuple[float, float, float]:
    """Anywhere in the lane: m, m and rad in the hall's frame."""
    return float(rng.uniform(0, 12)), float(rng.uniform(-0.5, 0.5)), float(rng.normal(0, 0.25))


def _near_view(hall: Variation, rng: np.random.Generator) -> tuple[float, float, float]:
    """0.7 to 4.5 m before a cross aisle, or 0.5 to 2.2 m before somebody: m, m and rad."""
    heading = float(rng.normal(0, 0.25))
    if not hall.actors or rng.random() < 0.5:
        gap = float(rng.choice(hall.scenario.gaps))
        return gap - float(rng.uniform(0.7, 4.5)), float(rng.uniform(-0.5, 0.5)), heading
    x, y = hall.actors[int(rng.integers(len(hall.actors)))].start
    aside = float(np.clip(y + rng.normal(0, 0.3), -0.7, 0.7))
    return x - float(rng.uniform(0.5, 2.2)), aside, heading


def _write(
    world: World,
    out: Path,
    images: list[dict[str, Any]],
    annotations: list[dict[str, Any]],
    brightness: float,
    noise: float,
) -> None:
    picture, truth = world.labelled_picture(brightness, noise)
    horizon = float(world.camera.project([[1e6, 0.0, MOUNT.z]])[0, 1])
    name = f"images/{len(images):06d}.jpg"
    with atomic_path(out / name) as path:
        cv2.imwrite(
            str(path), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 92]
        )
    images.append({"id": len(images) + 1, "file_name": name, "width": WIDTH, "height": HEIGHT})
    for box, label, seen in zip(
        truth.xywh.tolist(), truth.labels.tolist(), truth.scores.tolist(), strict=True
    ):
        smaller = min(box[2], box[3])
        plain = smaller >= PLAIN and box[1] + box[3] > horizon
        annotations.append(
            {
                "id": len(annotations) + 1,
                "image_id": len(images),
                "category_id": label + 1,
                "bbox": [round(value, 1) for value in box],
                "area": round(box[2] * box[3], 1),
                "iscrowd": int(smaller < SMALLEST or (seen < LEAST_SEEN and not plain)),
            }
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the data set")
    parser.add_argument("--count", type=int, default=300, help="pictures (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the halls (default 1)")
    parser.add_argument("--near", action="store_true", help="close to cross aisles with traffic")
    args = parser.parse_args()
    try:
        print(render(args.out, args.count, args.seed, args.near))
    except WaysightError as error:
        print(f"waysight: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
