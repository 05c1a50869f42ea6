"""Dead letters over time: retention, search across queues, replay at a rate with undo, copies for workers."""
