"""Multi-object tracker: two-stage association over a constant-velocity filter, in seconds.

Detections with a high score are matched first, those with a low score then keep alive the tracks
that are left (the idea of ByteTrack: Zhang et al., "ByteTrack: Multi-Object Tracking by
Associating Every Detection Box", ECCV 2022). Every duration is in seconds and measured from
stamps, so that the same settings hold at 10 and at 180 pictures a second.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from perception.detections import UNTRACKED, Detections
from perception.tracking.association import (
    canonical_order,
    distinct_rows,
    gate,
    match_rest,
    similarity,
    trackable,
)
from perception.tracking.motion import Floats, MotionState

_LOG = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]
_NANOSECONDS = 1e-9
_CLASS_VOTE_SECONDS = 1.0  # time constant with which a track forgets earlier class votes
_SLOW_PERIOD = 0.2  # seconds; two pictures no further apart than this are a slow camera, not a gap
_PERIOD_WINDOW = 15  # steps whose median is taken for the time between pictures


@dataclass(frozen=True)
class TrackerSettings:
    """Settings of a Tracker; ValueError names the field that is out of range.

    high_threshold: score from which a detection takes part in the first stage, 0..1.
    low_threshold: score from which it takes part in the second stage, 0..high_threshold.
    start_threshold: score from which an unmatched detection starts a track, high_threshold..1.
    match_iou, low_match_iou: least IoU of a detection and a predicted box for a match in the first
        and second stage, 0..1. What the first stage leaves over is tried once more with both
        boxes widened by the uncertainty of the prediction.
    class_change: factor on the IoU when the classes differ, 0..1; 0 forbids such matches.
    duplicate_iou: a detection that covers a tracked one by more than this starts no track: two
        classes reported for one object are one object.
    retention: seconds that a track outlives its last detection, more than 0.
    largest_step_back: seconds; a stamp earlier by no more than this is a late picture, one earlier
        by more is a new session (a looped bag, a restarted clock).
    """

    high_threshold: float = 0.4
    low_threshold: float = 0.1
    start_threshold: float = 0.5
    match_iou: float = 0.2
    low_match_iou: float = 0.4
    class_change: float = 0.6
    duplicate_iou: float = 0.7
    retention: float = 1.0
    largest_step_back: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("retention", "largest_step_back"):
                if not (0.0 < value < float("inf")):
                    raise ValueError(f"{field.name} is {value}, expected seconds above 0")
            elif not 0.0 <= value <= 1.0:
                raise ValueError(f"{field.name} is {value}, expected 0 to 1")
        if not self.low_threshold <= self.high_threshold <= self.start_threshold:
            raise ValueError(
                f"low_threshold {self.low_threshold}, high_threshold {self.high_threshold} and "
                f"start_threshold {self.start_threshold} are expected in ascending order"
            )

    def frames_kept(self, frame_rate: float) -> int:
        """Missed pictures in a row that a track survives at `frame_rate` pictures a second."""
        if not 0.0 < frame_rate < float("inf"):
            raise ValueError(f"frame_rate is {frame_rate}, expected pictures a second above 0")
        return int(self.retention * frame_rate + 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class LostTracks:
    """Tracks without a detection in the present picture, where the filter expects them.

    ids int64 (N,); boxes float32 (N, 4) xyxy pixels; labels int64 (N,); velocities float32 (N, 2)
    px/s; hidden_s float64 (N,) seconds since last seen; hidden_frames int64 (N,) valid pictures
    since then.
    """

    ids: Ints
    boxes: npt.NDArray[np.float32]
    labels: Ints
    velocities: npt.NDArray[np.float32]
    hidden_s: Floats
    hidden_frames: Ints

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """What the tracker makes of one picture.

    detections: every detection handed in, once and in its order, with box, class and score as they
        came; track_ids filled (-1: not tracked) and velocities in px/s (NaN: not known yet).
    det_index: int64 (N,), row of each in what was handed in (rows that are not finite are left
        out there and counted in detections.invalid_rows).
    labels: int64 (N,), class by the vote of the whole track; the detection's own if not tracked.
    lost: tracks that were not seen in this picture but are still kept.
    """

    detections: Detections
    det_index: Ints
    labels: Ints
    lost: LostTracks

    @property
    def ids(self) -> Ints:
        return self.detections.track_ids

    @property
    def valid(self) -> bool:
        """False: the picture was unusable, which says nothing about the scene."""
        return self.detections.valid

    def voted(self) -> Detections:
        """The detections with each track's class in place of the single picture's."""
        return replace(self.detections, labels=self.labels)

    def __len__(self) -> int:
        return len(self.detections)


@dataclass(slots=True)
class _Bank:
    """One row a track, in order of id."""

    motion: MotionState
    ids: Ints
    labels: Ints
    vote: Floats  # weight behind the present label
    seen_s: Floats  # time last seen, seconds on the tracker's clock
    hidden_frames: Ints

    @classmethod
    def start(cls, boxes: Floats, ids: Ints, labels: Ints, scores: Floats, now: float) -> _Bank:
        count = len(boxes)
        return cls(
            motion=MotionState.start(boxes),
            ids=ids,
            labels=labels,
            vote=scores,
            seen_s=np.full(count, now),
            hidden_frames=np.zeros(count, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        if mask.all():
            return
        motion = self.motion
        self.motion = MotionState(motion.position[mask], motion.rate[mask], motion.covariance[mask])
        self.ids, self.labels, self.vote = self.ids[mask], self.labels[mask], self.vote[mask]
        self.seen_s, self.hidden_frames = self.seen_s[mask], self.hidden_frames[mask]

    def extend(self, new: _Bank) -> None:
        old, add = self.motion, new.motion
        self.motion = MotionState(
            np.concatenate([old.position, add.position]),
            np.concatenate([old.rate, add.rate]),
            np.concatenate([old.covariance, add.covariance]),
        )
        self.ids = np.concatenate([self.ids, new.ids])
        self.labels = np.concatenate([self.labels, new.labels])
        self.vote = np.concatenate([self.vote, new.vote])
        self.seen_s = np.concatenate([self.seen_s, new.seen_s])
        self.hidden_frames = np.concatenate([self.hidden_frames, new.hidden_frames])


class Tracker:
    """Tracks of one camera. Instances share nothing; ids start at 1 in each and after reset().

    late: pictures whose stamp was not after the last one. They get the ids of the tracks they
        match and change nothing. resets: jumps back in time that began a new session.
    """

    def __init__(
        self, settings: TrackerSettings | None = None, log: Callable[[str], object] | None = None
    ) -> None:
        """`log` takes one sentence at a jump in time; by default the module's logger does."""
        self.settings = settings or TrackerSettings()
        self._log = log or _LOG.warning
        self.late = 0
        self.resets = 0
        self.reset()

    def reset(self) -> None:
        """Forget every track; the next id is 1 again."""
        self._bank = _empty_bank()
        self._next_id = 1
        self._now_ns: int | None = None  # stamp of the last picture
        self._now_s = 0.0  # the same, in seconds since the first
        self._steps: deque[float] = deque(maxlen=_PERIOD_WINDOW)

    def update(self, detections: Detections | npt.ArrayLike | None, stamp_ns: int) -> Tracks:
        """Take in the detections of one picture.

        detections: Detections, or rows x1 y1 x2 y2 score label as an (N, 6) array or list; None,
            [] and (0, 6) mean that nothing was found. Detections with `valid` False move the
            tracks on and come back invalid. stamp_ns: acquisition time of the picture, ns.
        Raises ValueError for an array of another shape.
        """
        found, det_index = _as_detections(detections)
        step = self._advance(int(stamp_ns))
        ids = np.full(len(found), UNTRACKED, dtype=np.int64)
        if step is None:
            self.late += 1
            rows, columns = self._associate(found)
            ids[columns] = self._bank.ids[rows]
            return self._report(found, det_index, ids)
        bank = self._bank
        hidden = bank.seen_s < self._now_s - step
        bank.motion.predict(step, hidden)
        bank.vote *= np.exp(-step / _CLASS_VOTE_SECONDS)
        self._expire(self._period())
        if found.valid:
            rows, columns = self._associate(found)
            ids[columns] = bank.ids[rows]
            self._correct(found, rows, columns)
            self._start(found, ids)
            self._expire(0.0)
        return self._report(found, det_index, ids)

    def _advance(self, stamp_ns: int) -> float | None:
        """Seconds since the last picture; None for a picture that is not after it."""
        if self._now_ns is None:
            self._now_ns = stamp_ns
            return 0.0
        step = (stamp_ns - self._now_ns) * _NANOSECONDS
        if step < -self.settings.largest_step_back:
            dropped = len(self._bank)
            self._log(f"time jumped back by {-step:.3f} s: a new session, {dropped} tracks dropped")
            self.reset()
            self.resets += 1
            self._now_ns = stamp_ns
            return 0.0
        if step <= 0:
            return None
        self._now_ns = stamp_ns
        self._now_s += step
        self._steps.append(step)
        return step

    def _period(self) -> float:
        """Usual seconds between pictures; after very few, a long gap is not taken for usual."""
        if not self._steps:
            return 0.0
        median = sorted(self._steps)[len(self._steps) // 2]
        if len(self._steps) > 2:
            return median
        return min(median, max(self.settings.retention, _SLOW_PERIOD))

    def _expire(self, allowance: float) -> None:
        """End the tracks hidden for longer than the retention.

        allowance: seconds in which a track had no chance to be seen. Before the present picture is
        looked at that is one period; half a period more absorbs the jitter of the stamps.
        """
        limit = self.settings.retention + allowance + self._period() / 2
        self._bank.keep(self._now_s - self._bank.seen_s <= limit)

    def _associate(self, found: Detections) -> tuple[Ints, Ints]:
        """(rows of the bank, rows of `found`) that belong together, without changing either."""
        bank, settings = self._bank, self.settings
        nothing = np.empty(0, dtype=np.int64)
        if not len(bank) or not len(found):
            return nothing, nothing
        order = canonical_order(found)
        scores, boxes = found.scores[order], found.boxes[order]
        predicted, spread = bank.motion.boxes(), bank.motion.position_std()
        change = np.where(
            bank.labels[:, None] == found.labels[order][None, :], 1.0, settings.class_change
        )
        overlap = similarity(predicted, boxes) * change
        high = scores >= settings.high_threshold
        low = (scores >= settings.low_threshold) & ~high
        every_track = np.ones(len(bank), dtype=bool)
        in_sight = bank.hidden_frames == 0
        first = gate(overlap, settings.match_iou)
        rows, columns = match_rest(first, every_track, high, nothing, nothing)
        if high.sum() > len(columns):
            # Widened boxes come second and only for tracks of the last picture: otherwise two
            # neighbours trade ids, and a newcomer takes over a track that has long left.
            near = gate(similarity(predicted, boxes, spread) * change, settings.match_iou)
            rows, columns = match_rest(near, in_sight, high, rows, columns)
        if low.any():
            faint = gate(overlap, settings.low_match_iou)
            rows, columns = match_rest(faint, in_sight, low, rows, columns)
        return rows, order[columns]

    def _correct(self, found: Detections, rows: Ints, columns: Ints) -> None:
        bank = self._bank
        bank.hidden_frames += 1
        bank.hidden_frames[rows] = 0
        bank.seen_s[rows] = self._now_s
        bank.motion.correct(rows, found.boxes[columns].astype(np.float64))
        # Weighted majority vote (Boyer and Moore, 1981): a class that is outvoted gives way.
        scores, labels = found.scores[columns].astype(np.float64), found.labels[columns]
        vote = bank.vote[rows] + np.where(labels == bank.labels[rows], scores, -scores)
        bank.labels[rows] = np.where(vote < 0, labels, bank.labels[rows])
        bank.vote[rows] = np.abs(vote)

    def _start(self, found: Detections, ids: Ints) -> None:
        """Start tracks from what is left over with a high score; fills their rows of `ids`."""
        fresh = (ids == UNTRACKED) & (found.scores >= self.settings.start_threshold)
        if not fresh.any():
            return
        fresh &= trackable(found.boxes)
        rows = canonical_order(found)
        rows = rows[fresh[rows]]
        taken = found.boxes[ids != UNTRACKED]
        covered = similarity(taken, found.boxes[rows]) > self.settings.duplicate_iou
        rows = rows[~covered.any(axis=0)]
        boxes = found.boxes[rows]
        alike = similarity(boxes, boxes) > self.settings.duplicate_iou
        rows = rows[distinct_rows(alike)]
        ids[rows] = np.arange(self._next_id, self._next_id + len(rows))
        self._next_id += len(rows)
        self._bank.extend(
            _Bank.start(
                found.boxes[rows].astype(np.float64),
                ids[rows],
                found.labels[rows],
                found.scores[rows].astype(np.float64),
                self._now_s,
            )
        )

    def _report(self, found: Detections, det_index: Ints, ids: Ints) -> Tracks:
        bank = self._bank
        velocities = bank.motion.velocities()
        labels = found.labels.copy()
        shown = np.full((len(found), 2), np.nan, dtype=np.float32)
        tracked = np.flatnonzero(ids != UNTRACKED)
        rows = np.searchsorted(bank.ids, ids[tracked])
        labels[tracked] = bank.labels[rows]
        shown[tracked] = velocities[rows]
        unseen = np.ones(len(bank), dtype=bool)
        unseen[rows] = False
        lost = LostTracks(
            ids=bank.ids[unseen],
            boxes=bank.motion.boxes()[unseen].astype(np.float32),
            labels=bank.labels[unseen],
            velocities=velocities[unseen],
            hidden_s=self._now_s - bank.seen_s[unseen],
            hidden_frames=bank.hidden_frames[unseen],
        )
        return Tracks(found.with_tracks(ids, shown), det_index, labels, lost)


def _empty_bank() -> _Bank:
    none = np.empty(0)
    whole = np.empty(0, dtype=np.int64)
    return _Bank.start(np.empty((0, 4)), whole, whole.copy(), none, 0.0)


def _as_detections(given: Detections | npt.ArrayLike | None) -> tuple[Detections, Ints]:
    """`given` as Detections with finite rows, and the row that each of them came from."""
    if isinstance(given, Detections):
        found = given
    else:
        rows = np.asarray([] if given is None else given, dtype=np.float64)
        if rows.size == 0:
            rows = rows.reshape(0, 6)
        if rows.ndim != 2 or rows.shape[1] != 6:
            raise ValueError(
                f"detections have shape {rows.shape}, expected (N, 6): x1 y1 x2 y2 score label"
            )
        whole = np.where(np.isfinite(rows[:, 5]), rows[:, 5], 0).astype(np.int64)
        scores = np.where(np.isfinite(rows[:, 5]), rows[:, 4], np.nan)
        with np.errstate(over="ignore"):  # a coordinate past float32 becomes infinite: left out
            found = Detections.create(rows[:, :4], scores, whole)
    finite = np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores)
    if finite.all():
        return found, np.arange(len(found), dtype=np.int64)
    dropped = int(len(finite) - finite.sum())
    index = np.flatnonzero(finite).astype(np.int64)
    return replace(found[index], invalid_rows=found.invalid_rows + dropped), index
