-- Schema 5. Ids of new messages cannot be guessed from others; see `tampu.engines.secret_tails`. The secret they are
-- made with is drawn by the program.

-- The last number whose id is made without it: 0 if the store was never used.
INSERT IGNORE INTO tampu_meta SELECT 'since', IF(EXISTS (SELECT 1 FROM tampu_queue), NEXTVAL(tampu_number), 0);
