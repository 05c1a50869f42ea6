-- The number of an entry without records, for what ended.
SELECT NEXTVAL(tampu_entry)
