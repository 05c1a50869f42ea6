-- After `sweeping` and what it was for: the rest of the commit may wait for locks again.
SELECT set_config('lock_timeout', current_setting('tampu_usual.lock_timeout'), true)
