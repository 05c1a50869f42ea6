"""Commands of the panel Work: publish, claim and settle, schedules, a worker."""
