"""Where tasks run: on the event loop, in threads, in child processes. And how they are interrupted."""
