"""Tasks and the runner: functions that handle messages, and the process that calls them."""
