"""nuScenes and nuImages tables (and the T4 format): 2-D boxes, or 3-D boxes projected.

2-D boxes come from object_ann.json. Without it the 3-D boxes of sample_annotation.json are
projected into every camera's key frames. `Sample.velocity` is the change of position between the
annotations before and after over the time between them, unknown without a neighbour or past 1.5 s
(nuscenes-devkit `box_velocity`, nuscenes-devkit#313).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perception.datasets.jsonstream import Truncated, head, pieces
from perception.datasets.plan import Plan
from perception.datasets.report import Finding, Report
from perception.datasets.rows import PICTURES_A_BATCH, Rows, to_text
from perception.datasets.sample import Sample
from perception.datasets.source import Source, short
from perception.datasets.text import LIMIT, inside
from perception.errors import InputError

HOLDS = frozenset(
    {
        "size",
        "unlabelled",
        "id",
        "sequence",
        "camera",
        "stamp",
        "track_id",
        "box_id",
        "box_attributes",
    }
)

MAX_GAP = 1.5
"""Seconds between two annotations past which no velocity is told (nuscenes-devkit)."""
NEAR = 0.1
"""Metres in front of the camera at which 3-D boxes are cut before they are projected."""
# Share hidden, from the middle of nuScenes' visibility levels; other names tell no share.
_HIDDEN = {"v0-40": 0.8, "v40-60": 0.5, "v60-80": 0.3, "v80-100": 0.1}
_NEEDED = ("sample_data", "calibrated_sensor", "sensor", "category")
_OPTIONAL = (
    "sample",
    "scene",
    "ego_pose",
    "instance",
    "attribute",
    "visibility",
    "sample_annotation",
    "object_ann",
)

Row = dict[str, Any]


def claims(path: Path) -> str:
    """See plan.Format."""
    tables = _tables(path)
    return f"{tables.name} has sample_data.json" if tables else ""


def _tables(path: Path) -> Path | None:
    """The folder with the tables: path, or one of its folders (v1.0-mini, annotation...)."""
    if not path.is_dir():
        return None
    folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    return next(
        (
            f
            for f in folders
            if (f / "sample_data.json").is_file() and head(f / "sample_data.json").startswith(b"[")
        ),
        None,
    )


def plan(path: Path) -> Plan:
    """See plan.Format; the one unit is the folder of the tables."""
    tables = _tables(path)
    if tables is None:
        raise InputError(f"{path}: no folder with sample_data.json found here")
    missing = [name for name in _NEEDED if not (tables / f"{name}.json").is_file()]
    if missing:
        raise InputError(f"{tables}: {missing[0]}.json is missing")
    root = path
    if tables == path and not (path / "samples").is_dir():
        root = path.parent
    unit = tables.relative_to(root).as_posix()
    sources = tuple(sorted(file.relative_to(root).as_posix() for file in tables.glob("*.json")))
    return Plan("nuscenes", root, (unit,), None, sources)


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    for unit in units:
        yield from _Tables(plan.root, unit).batches()


def velocity(
    annotation: Row, annotations: Mapping[str, Row], stamps: Mapping[str, int]
) -> tuple[float, float, float] | None:
    """m/s in the global frame, None when unknown.

    annotations: sample_annotation rows by token; stamps: microseconds by sample token.
    """
    before = annotations.get(str(annotation.get("prev")), annotation)
    after = annotations.get(str(annotation.get("next")), annotation)
    if before is after:
        return None
    seconds = (stamps.get(after["sample_token"], 0) - stamps.get(before["sample_token"], 0)) / 1e6
    both = before is not annotation and after is not annotation
    if not 0 < seconds <= (2 * MAX_GAP if both else MAX_GAP):
        return None
    first, last = np.asarray(before["translation"]), np.asarray(after["translation"])
    vx, vy, vz = ((last - first) / seconds).tolist()
    return vx, vy, vz


class _Tables:
    """All tables of a data set, by token."""

    def __init__(self, root: Path, unit: str) -> None:
        self.root, self.unit = root, unit
        self.report = Report()
        self.tables = {name: self._table(name) for name in (*_NEEDED, *_OPTIONAL)}
        self.stamps = {
            token: row.get("timestamp", 0)
            for token, row in self.tables["sample"].items()
            if isinstance(row.get("timestamp"), int)
        }
        self.boxes_2d: dict[str, list[Row]] = {}
        for row in self.tables["object_ann"].values():
            self.boxes_2d.setdefault(str(row.get("sample_data_token")), []).append(row)
        self.boxes_3d: dict[str, list[Row]] = {}
        self.by_instance: dict[tuple[str, str], Row] = {}
        for row in self.tables["sample_annotation"].values():
            if self._usable_3d(row):
                self.boxes_3d.setdefault(row["sample_token"], []).append(row)
                key = (row["sample_token"], str(row.get("instance_token")))
                self.by_instance[key] = row
        self.tracks = {token: i for i, token in enumerate(self.tables["instance"])}

    def _file(self, name: str) -> str:
        return f"{self.unit}/{name}.json" if self.unit != "." else f"{name}.json"

    def _error(self, code: str, message: str, name: str, line: int = 0, picture: str = "") -> None:
        self.report.add("error", code, message, file=self._file(name), line=line, picture=picture)

    def _table(self, name: str) -> dict[str, Row]:
        path = self.root / self._file(name)
        rows: dict[str, Row] = {}
        if not path.is_file():
            return rows
        try:
            for piece in pieces(path, frozenset({""})):
                for text, line in piece.elements():
                    try:
                        row = json.loads(text)
                        token = row["token"]
                    except (ValueError, KeyError, TypeError, RecursionError) as error:
                        self._error("bad-json", f"not a usable row: {error!r}", name, line)
                        continue
                    if name == "object_ann":
                        row.pop("mask", None)
                    row["_line"] = line
                    rows[str(token)] = row
        except Truncated as error:
            self._error("truncated", str(error), name)
        except InputError as error:
            self._error("not-json", str(error), name)
        return rows

    def _usable_3d(self, row: Row) -> bool:
        sizes = (("translation", 3), ("size", 3), ("rotation", 4))
        good = isinstance(row.get("sample_token"), str) and all(
            _numbers(row.get(key), count) for key, count in sizes
        )
        if not good:
            self._error(
                "bad-box",
                "an annotation without a finite translation, size and rotation",
                "sample_annotation",
                row["_line"],
            )
        return good

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = Rows()
        names = [str(row.get("name")) for row in self.tables["category"].values()]
        rows.declare(list(dict.fromkeys(names)), {})
        yield rows.batch()
        skipped = Counter[str]()
        for data in sorted(self.tables["sample_data"].values(), key=self._order):
            calibration = self.tables["calibrated_sensor"].get(
                str(data.get("calibrated_sensor_token")), {}
            )
            sensor = self.tables["sensor"].get(str(calibration.get("sensor_token")), {})
            if sensor.get("modality", "camera") != "camera":
                skipped[f"{sensor.get('modality')} sweeps"] += 1
            elif not data.get("is_key_frame", True) and data["token"] not in self.boxes_2d:
                skipped["camera pictures between key frames, which nobody annotated"] += 1
            else:
                self._picture(rows, data, calibration, sensor)
                if len(rows) >= PICTURES_A_BATCH:
                    yield rows.batch()
        for what, count in sorted(skipped.items()):
            self.report.add(
                "info",
                "not-a-picture",
                f"{count} {what} are left out",
                file=self._file("sample_data"),
            )
        rows.picture("", None)
        rows.findings(self.report.findings)
        yield rows.batch()

    def _order(self, data: Row) -> tuple[str, int, str, str]:
        scene = self._scene(data)
        stamp = data.get("timestamp")
        return (
            scene,
            stamp if isinstance(stamp, int) else 0,
            str(data.get("filename")),
            data["token"],
        )

    def _scene(self, data: Row) -> str:
        sample = self.tables["sample"].get(str(data.get("sample_token")), {})
        scene = self.tables["scene"].get(str(sample.get("scene_token")), {})
        return str(scene.get("name", ""))

    def _picture(self, rows: Rows, data: Row, calibration: Row, sensor: Row) -> None:
        name = str(data.get("filename", ""))
        image = inside(name) or ""
        findings: list[Finding] = []
        if not image:
            findings.append(
                Finding(
                    "error",
                    "outside-root",
                    f"{name!r} leads out of the data set's folder",
                    self._file("sample_data"),
                    data["_line"],
                    name,
                )
            )
        stamp = data.get("timestamp")
        width, height = _pixels(data.get("width")), _pixels(data.get("height"))
        rows.picture(
            name,
            image,
            id=data["token"],
            width=width,
            height=height,
            sequence=self._scene(data),
            camera=str(sensor.get("channel", "")),
            source=self._file("sample_data"),
            stamp_ns=stamp * 1000 if isinstance(stamp, int) and 0 <= stamp < 2**53 else 0,
            line=data["_line"],
        )
        if self.tables["object_ann"]:
            for row in self.boxes_2d.get(data["token"], []):
                self._box_2d(rows, row, data, findings, name)
        elif width and height and _numbers(_flat(calibration.get("camera_intrinsic")), 9):
            for row in self.boxes_3d.get(str(data.get("sample_token")), []):
                self._box_3d(rows, row, data, calibration, (width, height))
        rows.findings(findings)

    def _box_2d(self, rows: Rows, row: Row, data: Row, findings: list[Finding], name: str) -> None:
        box = row.get("bbox")
        category = self.tables["category"].get(str(row.get("category_token")))
        if not _numbers(box, 4) or category is None:
            what = "bbox is not four finite numbers" if category else "the category is unknown"
            findings.append(
                Finding(
                    "error",
                    "bad-box" if category else "unknown-class",
                    what,
                    self._file("object_ann"),
                    row["_line"],
                    name,
                )
            )
            return
        assert isinstance(box, list)
        solid = self.by_instance.get(
            (str(data.get("sample_token")), str(row.get("instance_token")))
        )
        extra = self._details(solid) if solid else {}
        extra.update(self._common(row), lines=row["_line"])
        x1, y1, x2, y2 = box
        rows.box(x1, y1, x2, y2, str(category.get("name")), **extra)

    def _common(self, row: Row) -> dict[str, Any]:
        extra: dict[str, Any] = {"box_ids": row["token"]}
        track = self.tracks.get(str(row.get("instance_token")))
        if track is not None:
            extra["track_ids"] = track
        tokens = row.get("attribute_tokens") or []
        states = (
            [
                str(self.tables["attribute"][token].get("name"))
                for token in tokens
                if token in self.tables["attribute"]
            ]
            if isinstance(tokens, list)
            else []
        )
        level = self.tables["visibility"].get(str(row.get("visibility_token")), {}).get("level")
        attributes = {"state": ",".join(states), "visibility": str(level or "")}
        text = to_text({key: value for key, value in attributes.items() if value})
        if text:
            extra["box_attributes"] = text
        return extra

    def _details(self, row: Row) -> dict[str, Any]:
        """What the 3-D annotation says beside its box."""
        extra: dict[str, Any] = {}
        points = [row.get(key) for key in ("num_lidar_pts", "num_radar_pts")]
        if any(isinstance(count, int) for count in points):
            extra["points"] = sum(count for count in points if isinstance(count, int))
        speed = velocity(row, self.tables["sample_annotation"], self.stamps)
        if speed is not None:
            extra["velocity"] = speed
        level = self.tables["visibility"].get(str(row.get("visibility_token")), {}).get("level")
        if level in _HIDDEN:
            extra["occlusion"] = _HIDDEN[level]
        return extra

    def _box_3d(
        self, rows: Rows, row: Row, data: Row, calibration: Row, size: tuple[int, int]
    ) -> None:
        instance = self.tables["instance"].get(str(row.get("instance_token")), {})
        category = self.tables["category"].get(str(instance.get("category_token")), {})
        pose = self.tables["ego_pose"].get(str(data.get("ego_pose_token")), {})
        corners = _corners(row["translation"], row["size"], row["rotation"])
        centre = np.asarray([row["translation"]], dtype=np.float64)
        for frame in (pose, calibration):
            corners, centre = _into(corners, frame), _into(centre, frame)
        intrinsic = np.asarray(calibration["camera_intrinsic"], dtype=np.float64).reshape(3, 3)
        box = project(corners, intrinsic, size)
        if box is None:
            return
        name = str(category.get("name", "")) or "unknown"
        heading = corners[0:4].mean(0) - corners[4:8].mean(0)
        width, length, height = row["size"]
        x, y, z = centre[0]
        x1, y1, x2, y2 = box
        rows.box(
            x1,
            y1,
            x2,
            y2,
            name,
            lines=row["_line"],
            distance=math.hypot(x, z),
            boxes_3d=(x, y, z, length, height, width, math.atan2(-heading[2], heading[0])),
            **self._details(row),
            **self._common(row),
        )


def _corners(translation: Any, size: Any, rotation: Any) -> npt.NDArray[np.float64]:
    """float64 (8, 3), global frame: the four front corners first; size is width, length, height."""
    width, length, height = size
    x = np.asarray([1, 1, 1, 1, -1, -1, -1, -1]) * length / 2
    y = np.asarray([1, -1, -1, 1, 1, -1, -1, 1]) * width / 2
    z = np.asarray([1, 1, -1, -1, 1, 1, -1, -1]) * height / 2
    return np.stack([x, y, z], 1) @ _matrix(rotation).T + np.asarray(translation, np.float64)


def _matrix(quaternion: Any) -> npt.NDArray[np.float64]:
    """Rotation matrix of a quaternion w x y z of any length but 0."""
    q = np.asarray(quaternion, np.float64)
    w, x, y, z = q / (np.linalg.norm(q) or 1.0)
    return np.asarray(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def _into(points: npt.NDArray[np.float64], frame: Row) -> npt.NDArray[np.float64]:
    """Points (N, 3) of the frame's parent in the frame itself."""
    if not (_numbers(frame.get("translation"), 3) and _numbers(frame.get("rotation"), 4)):
        return points
    moved: npt.NDArray[np.float64] = (
        points - np.asarray(frame["translation"], np.float64)
    ) @ _matrix(frame["rotation"])
    return moved


_EDGES = (
    (0, 1),
    (1, 2),
    (2, 3),
    (3, 0),
    (4, 5),
    (5, 6),
    (6, 7),
    (7, 4),
    (0, 4),
    (1, 5),
    (2, 6),
    (3, 7),
)


def project(
    corners: npt.NDArray[np.float64], intrinsic: npt.NDArray[np.float64], size: tuple[int, int]
) -> tuple[float, float, float, float] | None:
    """Box (pixels) around the part of a solid that the picture shows, None when it shows none.

    corners: (8, 3), optical frame. Edges that pass the camera are cut at NEAR metres.
    """
    points = [corner for corner in corners if corner[2] >= NEAR]
    for a, b in _EDGES:
        za, zb = corners[a][2], corners[b][2]
        if (za < NEAR) != (zb < NEAR):
            points.append(corners[a] + (corners[b] - corners[a]) * (NEAR - za) / (zb - za))
    if not points:
        return None
    flat = np.asarray(points) @ intrinsic.T
    flat = flat[:, :2] / flat[:, 2:]
    x1, y1 = np.maximum(flat.min(0), 0).tolist()
    x2, y2 = np.minimum(flat.max(0), size).tolist()
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 else None


def _flat(matrix: Any) -> Any:
    rows = matrix if isinstance(matrix, list) else []
    return [value for row in rows for value in (row if isinstance(row, list) else [])]


def _numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(
            isinstance(v, int | float) and not isinstance(v, bool) and -LIMIT <= v <= LIMIT
            for v in values
        )
    )


def _pixels(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value <= LIMIT else 0


def _token(*parts: object) -> str:
    """A token that is the same on every run: 32 hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def write(source: Source, out: Path) -> None:
    """Write v1.0-waysight/*.json with 2-D boxes (nuImages' object_ann) and the pictures.

    Camera calibration and poses are not known and stay empty; see plan.Format.
    """
    writer = _Writer(source)
    for sample in source.samples():
        stem = source.stem(sample, folders=True)
        writer.add(sample, source.put_picture(sample, out / "samples", stem))
    folder = out / "v1.0-waysight"
    folder.mkdir(parents=True)
    for name, rows in writer.tables().items():
        text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{name}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8", newline="\n")


class _Writer:
    def __init__(self, source: Source) -> None:
        self.names = source.names
        self.source = source
        self.scenes: dict[str, list[str]] = {}
        self.cameras: dict[str, None] = {}
        self.instances: dict[tuple[str, int, int], list[str]] = {}
        self.attributes: dict[str, None] = {}
        self.levels: dict[str, None] = {}
        self.samples: list[Row] = []
        self.data: list[Row] = []
        self.boxes: list[Row] = []

    def add(self, sample: Sample, name: str) -> None:
        number = len(self.data)
        scene = sample.sequence or "scene"
        camera = sample.camera or "CAMERA"
        self.cameras[camera] = None
        token = sample.id if len(sample.id) == 32 else _token("data", number)
        stamp = sample.stamp_ns // 1000
        if sample.stamp_ns % 1000:
            self.source.tally("lost-time", "times are kept to a microsecond")
        sample_token = _token("sample", number)
        self.scenes.setdefault(scene, []).append(sample_token)
        self.samples.append(
            {
                "token": sample_token,
                "timestamp": stamp,
                "scene_token": _token("scene", scene),
                "prev": "",
                "next": "",
            }
        )
        self.data.append(
            {
                "token": token,
                "sample_token": sample_token,
                "ego_pose_token": _token("pose", number),
                "calibrated_sensor_token": _token("calibration", camera),
                "filename": f"samples/{name}",
                "fileformat": name.rpartition(".")[2],
                "width": sample.width,
                "height": sample.height,
                "timestamp": stamp,
                "is_key_frame": True,
                "prev": "",
                "next": "",
            }
        )
        for i in range(len(sample.truth)):
            self._box(sample, i, token, scene)

    def _box(self, sample: Sample, i: int, data: str, scene: str) -> None:
        track, label = int(sample.truth.track_ids[i]), int(sample.truth.labels[i])
        token = (
            sample.box_ids[i] if len(sample.box_ids[i]) == 32 else _token("box", len(self.boxes))
        )
        states = [s for s in sample.box_attributes[i].get("state", "").split(",") if s]
        level = sample.box_attributes[i].get("visibility", "")
        self.attributes.update(dict.fromkeys(states))
        self.levels.update(dict.fromkeys([level] if level else []))
        row: Row = {
            "token": token,
            "sample_data_token": data,
            "category_token": _token("category", self.names[label]),
            "attribute_tokens": [_token("attribute", state) for state in states],
            "bbox": [float(short(value)) for value in sample.truth.boxes[i]],
        }
        if level:
            row["visibility_token"] = _token("visibility", level)
        other = set(sample.box_attributes[i]) - {"state", "visibility"}
        if other:
            self.source.tally("lost-box_attributes", f"attributes {sorted(other)} have no table")
        if track >= 0:
            key = (scene, track, label)
            self.instances.setdefault(key, []).append(token)
            row["instance_token"] = _token("instance", *key)
        self.boxes.append(row)

    def tables(self) -> dict[str, list[Row]]:
        poses = [
            {
                "token": row["ego_pose_token"],
                "timestamp": row["timestamp"],
                "translation": [0.0, 0.0, 0.0],
                "rotation": [1.0, 0.0, 0.0, 0.0],
            }
            for row in self.data
        ]
        return {
            "sample_data": self.data,
            "sample": self.samples,
            "object_ann": self.boxes,
            "ego_pose": poses,
            "log": [
                {
                    "token": _token("log"),
                    "logfile": "",
                    "vehicle": "",
                    "date_captured": "",
                    "location": "",
                }
            ],
            "scene": [
                {
                    "token": _token("scene", name),
                    "name": name,
                    "description": "",
                    "log_token": _token("log"),
                    "nbr_samples": len(samples),
                    "first_sample_token": samples[0],
                    "last_sample_token": samples[-1],
                }
                for name, samples in self.scenes.items()
            ],
            "sensor": [
                {"token": _token("sensor", name), "channel": name, "modality": "camera"}
                for name in self.cameras
            ],
            "calibrated_sensor": [
                {
                    "token": _token("calibration", name),
                    "sensor_token": _token("sensor", name),
                    "translation": [0.0, 0.0, 0.0],
                    "rotation": [1.0, 0.0, 0.0, 0.0],
                    "camera_intrinsic": [],
                }
                for name in self.cameras
            ],
            "category": [
                {"token": _token("category", name), "name": name, "description": ""}
                for name in self.names
            ],
            "attribute": [
                {"token": _token("attribute", name), "name": name, "description": ""}
                for name in self.attributes
            ],
            "visibility": [
                {"token": _token("visibility", name), "level": name, "description": ""}
                for name in self.levels
            ],
            "instance": [
                {
                    "token": _token("instance", scene, track, label),
                    "category_token": _token("category", self.names[label]),
                    "instance_name": str(track),
                    "nbr_annotations": len(tokens),
                    "first_annotation_token": tokens[0],
                    "last_annotation_token": tokens[-1],
                }
                for (scene, track, label), tokens in self.instances.items()
            ],
            "sample_annotation": [],
        }
