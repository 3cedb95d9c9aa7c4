"""A made-up KITTI drive with every rule of the protocol in it, the same on every machine."""

import numpy as np

from perception.evaluate.kitti import KittiFrame

KINDS = ("Car", "Van", "Pedestrian", "Person_sitting", "Cyclist", "Truck", "DontCare")
DETECTED = ("Car", "Pedestrian", "Cyclist")


def numbers():
    """Numbers in [0, 1) of the generator of Lehmer (Park and Miller, 1988)."""
    state = 20191008
    while True:
        state = state * 48271 % 2147483647
        yield state / 2147483647


def traffic(frames=60):
    """Frames with objects of all kinds, near hits, duplicates, false alarms and regions."""
    draw = numbers().__next__
    drive = []
    for number in range(frames):
        kinds, boxes, truncation, occlusion = [], [], [], []
        found, found_boxes, scores = [], [], []
        for _ in range(int(draw() * 8)):
            kind = KINDS[int(draw() ** 1.7 * len(KINDS))]
            x, y, width, height = draw() * 600, draw() * 600, 15 + draw() * 105, 15 + draw() * 105
            box = [x, y, x + width, y + height]
            kinds.append(kind)
            boxes.append(box)
            truncation.append(0.0 if draw() < 0.6 else draw())
            occlusion.append(0 if draw() < 0.5 else int(draw() * 4))
            for _ in range(int(draw() * 3)):
                right = kind in DETECTED and draw() < 0.9
                found.append(kind if right else DETECTED[int(draw() * 3)])
                found_boxes.append([side + (draw() - 0.5) * 8 for side in box])
                scores.append(draw())
        found.append("Car")
        x, y = draw() * 600, draw() * 600
        found_boxes.append([x, y, x + 10 + draw() * 80, y + 10 + draw() * 80])
        scores.append(draw())
        drive.append(
            KittiFrame(
                name=f"{number:06d}",
                kinds=tuple(kinds),
                boxes=np.round(np.array(boxes).reshape(-1, 4), 2),
                truncation=np.round(np.array(truncation, dtype=float), 2),
                occlusion=np.array(occlusion, dtype=float),
                result_kinds=tuple(found),
                result_boxes=np.round(np.array(found_boxes), 2),
                scores=np.round(np.array(scores), 3),
            )
        )
    return drive
