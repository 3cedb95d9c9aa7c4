"""Renders a series of scenes to files. Needs bpy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np

from perception.datasets.synthetic import drive
from perception.datasets.synthetic.annotate import Annotation, Rules, Shot, annotate, coco
from perception.datasets.synthetic.factory import sample_factory
from perception.datasets.synthetic.photo import Sensor, develop
from perception.datasets.synthetic.render import Quality, Renderer
from perception.datasets.synthetic.sampling import sample_road
from perception.datasets.synthetic.scene import Picture, Scene
from perception.errors import InputError
from perception.files import atomic_path, write_json
from perception.labels import FACTORY, ROAD, LabelSet

EVERY = 20
"""The json is written anew after this many pictures, so that a part of the series is usable."""


def _write_picture(path: Path, image: Picture, quality: list[int]) -> None:
    with atomic_path(path) as temporary:
        if not cv2.imwrite(str(temporary), image, quality):
            raise InputError(f"{path}: OpenCV could not write the picture")


def _save_shot(path: Path, shot: Shot) -> None:
    write_json(path, asdict(shot))


def _load_shot(path: Path) -> Shot:
    raw = json.loads(path.read_text(encoding="utf-8"))
    each = tuple(Annotation(**{**a, "bbox": tuple(a["bbox"])}) for a in raw.pop("annotations"))
    return Shot(annotations=each, **raw)


Sampler = Callable[[int, int, tuple[int, int]], tuple[Scene, Sensor]]


def roads(out: Path, seed: int, count: int, size: tuple[int, int], samples: int) -> None:
    """Write `count` road scenes; see `_series`."""
    _series(out, "road", sample_road, ROAD, seed, count, size, samples)


def factories(out: Path, seed: int, count: int, size: tuple[int, int], samples: int) -> None:
    """Write `count` factory scenes; see `_series`."""
    _series(out, "factory", sample_factory, FACTORY, seed, count, size, samples)


def _series(
    out: Path, kind: str, sample: Sampler, names: LabelSet, seed: int, count: int,
    size: tuple[int, int], samples: int,
) -> None:  # fmt: skip
    """Write `out`/images/*.jpg, `out`/parts/*.json (one a picture) and `out`/train.json (COCO)."""
    renderer = Renderer(Quality(samples=samples))
    info = {"description": f"synthetic {kind} scenes", "seed": seed, "license": "Apache-2.0"}
    shots: list[Shot] = []
    for number in range(count):
        name = f"{kind}_{seed}_{number:05d}"
        picture, part = out / "images" / f"{name}.jpg", out / "parts" / f"{name}.json"
        if picture.exists() and part.exists():
            shots.append(_load_shot(part))
        else:
            scene, sensor = sample(seed, number, size)
            renderer.load(scene)
            render = renderer.render(scene)
            rng = np.random.default_rng([seed, number, 1])
            image = develop(render, scene.weather, sensor, rng)
            found = annotate(render.index, scene.actors, scene.camera, Rules())
            keys = {
                "attributes": {
                    "weather": scene.weather.name,
                    "view": scene.view,
                    "place": scene.place,
                }
            }
            shot = Shot(f"images/{name}.jpg", size[0], size[1], tuple(found), keys)
            quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(72, 96))]
            _write_picture(picture, image, quality)
            _save_shot(part, shot)
            shots.append(shot)
        if len(shots) % EVERY == 0 or len(shots) == count:
            write_json(out / "train.json", coco(shots, names.names, info))
            print(f"{len(shots)} of {count} pictures", flush=True)


CLIP_RULES = Rules(min_visible=0.25, min_side=10)
"""What may be asked for in the clip: a quarter of it in view, ten pixels wide and high."""


def clip(out: Path, seed: int, frames: int, size: tuple[int, int], samples: int) -> None:
    """Write `out`/road_demo.mp4 and `out`/road_demo.json; frames wait in `out`/frames."""
    renderer, course = Renderer(Quality(samples=samples)), drive.Drive(seed, size)
    shots: list[Shot] = []
    loaded = False
    for number in range(frames):
        name = f"{number:05d}"
        picture, part = out / "frames" / f"{name}.png", out / "parts" / f"{name}.json"
        if picture.exists() and part.exists():
            shots.append(_load_shot(part))
            continue
        time = number / drive.FPS
        scene = course.scene(time)
        if not loaded:
            renderer.load(scene)
            loaded = True
        render = renderer.render(scene)
        sensor = Sensor(exposure=0.134, saturation=1.05)
        image = develop(render, scene.weather, sensor, np.random.default_rng([seed, number]))
        found = annotate(render.index, scene.actors, scene.camera, CLIP_RULES)
        keys = {
            "frame_index": number, "time": round(time, 6),
            "stamp_ns": round(number * 1_000_000_000 / drive.FPS), "sequence": "road_demo",
        }  # fmt: skip
        shot = Shot(f"road_demo.mp4#{number:05d}", size[0], size[1], tuple(found), keys)
        _write_picture(picture, image, [])
        _save_shot(part, shot)
        shots.append(shot)
        print(f"frame {number + 1} of {frames}", flush=True)
    _encode(out / "road_demo.mp4", out / "frames", frames, size)
    write_json(out / "road_demo.json", coco(shots, ROAD.names, _clip_info(seed, course, size)))


def _clip_info(seed: int, course: drive.Drive, size: tuple[int, int]) -> dict[str, object]:
    camera = course.scene(0.0).camera
    return {
        "description": "Waysight demo drive, rendered; exact ground truth",
        "license": "Apache-2.0",
        "seed": seed,
        "fps": drive.FPS,
        "camera": {
            "width": size[0], "height": size[1], "fx": camera.focal, "fy": camera.focal,
            "cx": size[0] / 2, "cy": size[1] / 2, "distortion": [0.0, 0.0, 0.0, 0.0, 0.0],
            "height_m": drive.CAMERA_HEIGHT, "pitch_deg": drive.CAMERA_PITCH,
            "ego_speed_mps": drive.EGO_SPEED,
        },
        "bbox": "[left, top, width, height], pixels from the corner, around visible pixels",
        "distance": "metres from the camera to the object's nearest point, along the optical axis "
        "laid flat on the ground",
        "pitch": "degrees, up is positive; it sways by 0.12 degrees, the height by 0.012 m",
        "crowd": f"iscrowd marks objects of which less than {CLIP_RULES.min_visible} is visible or "
        f"whose box is under {CLIP_RULES.min_side} px wide or high",
    }  # fmt: skip


def _encode(path: Path, folder: Path, frames: int, size: tuple[int, int]) -> None:
    """H.264 with a key frame each second, playable while it loads."""
    options = ["-crf", "21", "-preset", "slow", "-g", str(drive.FPS), "-movflags", "+faststart"]
    with atomic_path(path) as temporary:
        writer = imageio_ffmpeg.write_frames(
            str(temporary), size, fps=drive.FPS, codec="libx264", pix_fmt_in="bgr24",
            pix_fmt_out="yuv420p", quality=None, macro_block_size=2, output_params=options,
        )  # fmt: skip
        writer.send(None)
        try:
            for number in range(frames):
                image = cv2.imread(str(folder / f"{number:05d}.png"), cv2.IMREAD_COLOR)
                if image is None:
                    raise InputError(f"{folder / f'{number:05d}.png'}: not a picture")
                writer.send(np.ascontiguousarray(image))
        finally:
            writer.close()
