-- Nobody else gives offsets until the end of the transaction. Takes no snapshot: what comes after sees all before it.
LOCK TABLE tampu.journal_end IN EXCLUSIVE MODE
