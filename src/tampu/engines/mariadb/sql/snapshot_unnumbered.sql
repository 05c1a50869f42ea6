-- Out: no, part, n of the records that have no offset yet, in their order
SELECT no, part, n FROM tampu_journal_new FORCE INDEX (PRIMARY) ORDER BY no, part
