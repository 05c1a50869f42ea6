-- In:  $1 first of each record to remove
DELETE FROM tampu_journal WHERE first IN ($1) LIMIT #1
