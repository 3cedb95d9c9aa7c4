"""Frame to Detections, without torch and without ROS."""
