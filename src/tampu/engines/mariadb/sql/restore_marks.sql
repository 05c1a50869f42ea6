-- Messages that wait again take their expiry back, and their key if no newer message has it.
-- In:  $1 seqs
INSERT INTO tampu_expiry (at, seq) SELECT m.expires, m.seq FROM tampu_message m
WHERE m.seq IN ($1) AND m.expires IS NOT NULL ON DUPLICATE KEY UPDATE seq = VALUES(seq);
INSERT INTO tampu_key (q, word, seq) SELECT m.q, m.word, m.seq FROM tampu_message m
WHERE m.seq IN ($1) AND m.word IS NOT NULL ON DUPLICATE KEY UPDATE seq = tampu_key.seq
