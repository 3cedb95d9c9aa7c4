"""One module a format, each with `claims`, `plan`, `read`, `write` and `HOLDS` (see plan.py)."""
