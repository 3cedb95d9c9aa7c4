"""Groups of similar 64-bit hashes, without comparing every pair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROWS = 256
_BITS = np.asarray([bin(i).count("1") for i in range(256)], np.uint8)


def groups_of_similar(hashes: npt.NDArray[np.uint64], distance: int) -> list[list[int]]:
    """Indices of hashes that are linked by pairs differing in at most `distance` bits.

    hashes: uint64 (N,). Groups of two or more, each in ascending order. Of 64 bits cut into
    distance + 1 bands, two such hashes agree in one band at least, so only those are compared.
    """
    parent = np.arange(len(hashes))
    bands = distance + 1
    edges = np.linspace(0, 64, bands + 1).astype(int)
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        mask = np.uint64((1 << int(high - low)) - 1)
        band = (hashes >> np.uint64(low)) & mask
        order = np.argsort(band, kind="stable")
        cuts = np.flatnonzero(np.diff(band[order])) + 1
        for bucket in np.split(order, cuts):
            if len(bucket) > 1:
                _link(parent, hashes, bucket, distance)
    roots = np.asarray([_root(parent, i) for i in range(len(hashes))])
    groups: dict[int, list[int]] = {}
    for i, root in enumerate(roots.tolist()):
        groups.setdefault(root, []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def _link(
    parent: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    bucket: npt.NDArray[np.int64],
    distance: int,
) -> None:
    values = hashes[bucket]
    for begin in range(0, len(bucket), _ROWS):
        rows = values[begin : begin + _ROWS]
        near = _count_bits(rows[:, None] ^ values[None, begin:]) <= distance
        for a, b in zip(*np.nonzero(np.triu(near, 1)), strict=True):
            one = _root(parent, int(bucket[begin + a]))
            other = _root(parent, int(bucket[begin + b]))
            if one != other:
                parent[max(one, other)] = min(one, other)


def _count_bits(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Bits set in each value (numpy.bitwise_count is not in NumPy 1)."""
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, 8)
    counts: npt.NDArray[np.int64] = _BITS[octets].sum(axis=-1, dtype=np.int64)
    return counts


def _root(parent: npt.NDArray[np.int64], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = int(parent[i])
    return i
