"""Commands of the panel Manage: they change messages, queues and followers."""
