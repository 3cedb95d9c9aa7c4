"""The viewer's web page and markers; `state`, `server` and `pairing` know no ROS."""
