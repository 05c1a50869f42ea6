-- Schema 5. Ids of new messages cannot be guessed from others; see `tampu.engines.secret_tails`.

-- The secret they are made with, and the last number whose id is made without it.
INSERT OR IGNORE INTO tampu_meta VALUES ('secret', lower(hex(randomblob(16))));
INSERT OR IGNORE INTO tampu_meta SELECT 'since', n FROM tampu_counter WHERE q = 0 AND kind = 0;
