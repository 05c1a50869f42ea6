-- What is visible may not be on disk yet: InnoDB shows a commit before its log is flushed. A commit of our own comes
-- after it in the log, so when that has returned, all that we have seen is there for good.
UPDATE tampu_journal_end SET seen = seen + 1 WHERE one = 1
