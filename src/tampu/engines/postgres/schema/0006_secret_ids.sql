-- Schema 6. Ids of new messages cannot be guessed from others; see `tampu.engines.secret_tails`.

-- The secret they are made with, and the last number whose id is made without it: 0 if the store was never used.
INSERT INTO tampu.meta VALUES ('secret', replace(gen_random_uuid()::text, '-', '')),
  ('since', CASE WHEN EXISTS (SELECT 1 FROM tampu.queue) THEN nextval('tampu.number')::text ELSE '0' END)
ON CONFLICT DO NOTHING;
