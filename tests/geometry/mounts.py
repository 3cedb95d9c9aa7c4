"""Any way in which a camera may be mounted, for property tests."""

from hypothesis import strategies as st

from perception.geometry.camera import Mount

mounts = st.builds(
    Mount,
    z=st.floats(0.3, 3.0),
    x=st.floats(-1, 1),
    y=st.floats(-1, 1),
    roll=st.floats(-0.1, 0.1),
    pitch=st.floats(-0.3, 0.6),
    yaw=st.floats(-3, 3),
)
