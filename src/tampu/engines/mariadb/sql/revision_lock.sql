-- One change of documents at a time; there are few.
-- Out: the revision
SELECT n FROM tampu_revision WHERE one = 1 FOR UPDATE
