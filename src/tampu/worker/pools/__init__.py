"""Where tasks run: on the event loop, in threads, in child processes."""
